//! Running one failed job again, with the payload that a person has.

use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;

use super::command::Desk;
use super::{Refused, transition};
use crate::error::BoxError;
use crate::front::{Asked, Attribute, Message, Placed, Queue, asked};
use crate::handler::Router;
use crate::payload::Payload;
use crate::protocol::{self, Fingerprint, NotNow, Record, RecordId, Replay, Status};
use crate::runtime::{Entropy, OsEntropy};

/// The largest message that SQS takes.
const MAX_BODY: u64 = 1024 * 1024;

/// Reads a message's body from a file, or from standard input for `-`.
pub(super) fn read(path: &Path) -> Result<String, BoxError> {
    let input: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(stdin()),
        false => {
            let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Box::new(file)
        }
    };
    let mut body = String::new();
    input.take(MAX_BODY + 1).read_to_string(&mut body)?;
    match u64::try_from(body.len()) {
        Ok(0) => Err(format!("{} is empty", path.display()).into()),
        Ok(..=MAX_BODY) => Ok(body),
        _ => Err(format!("{} is over 1 MiB, which SQS does not take", path.display()).into()),
    }
}

/// Makes the job due, then sends its message. What is interrupted between the two is due and has no
/// message: run again, this sends it.
pub(super) async fn replay(
    desk: &Desk,
    id: &RecordId,
    body: String,
    group: Option<String>,
    queue: &dyn Queue,
) -> Result<Record, BoxError> {
    let store = desk.store.as_ref();
    let found = store.load(id).await?.ok_or_else(|| Refused::NoRecord(id.clone()))?;
    let message = message(&desk.jobs, &found, &body, group);
    let fingerprint = compared(&desk.jobs, &message, &found)?;
    if found.is_of_other(fingerprint.as_ref()) {
        return Err(Refused::NotNow(id.clone(), NotNow::OtherPayload).into());
    }
    let due = match found.status {
        // Made due before, and perhaps not sent.
        Status::Released if found.not_before.is_none() => found,
        _ => {
            transition(store, id, |record, claim_id, now| {
                let fingerprint = fingerprint.clone();
                protocol::replay(record, &Replay { claim_id, fingerprint }, now)
            })
            .await?
        }
    };
    match queue.send(&message).await {
        Ok(Placed::Sent) => Ok(due),
        Ok(Placed::Left(why)) => Err(format!("due, and not sent: {why}").into()),
        Err(error) => Err(format!("due, and perhaps not sent: run this again ({error})").into()),
    }
}

fn message(jobs: &Router, record: &Record, body: &str, group: Option<String>) -> Message {
    let rules = jobs.message_rules();
    let named = [(&rules.job_attribute, &record.job), (&rules.key_attribute, &record.key)];
    Message {
        // What tells it from others in a FIFO queue.
        id: OsEntropy.claim_id().as_str().to_owned(),
        body: Some(body.to_owned()),
        attributes: named.map(|(name, value)| (name.clone(), Attribute::text(value))).into(),
        group,
        ..Message::default()
    }
}

/// The digest that a worker would compare.
fn compared(
    jobs: &Router,
    message: &Message,
    record: &Record,
) -> Result<Option<Fingerprint>, BoxError> {
    let delivery = match asked(message, jobs.message_rules()) {
        Asked::Job(delivery) => delivery,
        Asked::Nothing => return Err("this body asks for nothing".into()),
        Asked::Unclear(why) => return Err(why.into()),
    };
    if let Some(job) = jobs.get(&record.job) {
        let payload = job.payload(&delivery.body);
        return Ok(job.fingerprint(&payload.map_err(|error| error.to_string())?));
    }
    // A job in Rust is known to its own binary: it takes JSON, or the body as it is.
    let raw = Payload::raw(delivery.body.clone()).fingerprint();
    if record.fingerprint.as_ref() == Some(&raw) {
        return Ok(Some(raw));
    }
    let json = Payload::json(delivery.body).map_err(|error| error.to_string())?;
    Ok(Some(json.fingerprint()))
}
