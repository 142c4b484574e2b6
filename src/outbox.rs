#![doc = include_str!("docs/outbox.md")]

use std::time::Duration;

use serde::Serialize;

use crate::error::{BoxError, Error, ErrorKind};
use crate::protocol::{IdempotencyKey, Unique, unique_row, xml_json};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::{Outbox, UNIQUE};

pub use crate::protocol::OutboxEntry;

/// The longest that SQS keeps a message: one that was sent earlier is nowhere any more.
const LONGEST: Duration = Duration::from_secs(14 * 24 * 3600);

fn refused(error: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Staged, "outbox").with_source(error)
}

/// An event for a transaction of your own, outside a job; in one, see
/// `Context::outbox`. It goes out by itself: to keep it in order with
/// others, set its [`order_key`](OutboxEntry::order_key).
///
/// [`OutboxEntry::row`] makes a row of it, for a store or as a `TransactWriteItem`;
/// `SqlStatement::try_from(&entry)` a statement.
pub fn entry(event: impl Into<String>, payload: &impl Serialize) -> Result<OutboxEntry, Error> {
    let created_at = SystemClock.now();
    let id = format!("{:013}-{}", created_at.millis(), OsEntropy.claim_id().as_str());
    let entry = OutboxEntry {
        order_key: id.clone(),
        event_id: IdempotencyKey::new(id).map_err(refused)?,
        event: event.into(),
        body: xml_json(serde_json::to_string(payload).map_err(refused)?),
        created_at,
        unique: None,
        trace: None,
    };
    entry.checked()?;
    Ok(entry)
}

/// A message that is in the queue once at a time: a second one with its unique id is not sent while
/// the job of the first waits or runs.
///
/// The unique id is not the key. The key says which operation it is, and an operation is done once
/// for ever; the unique id says what there must not be two of at a time: `reindex:42` may be
/// wanted again tomorrow, under tomorrow's key.
#[derive(Clone)]
pub struct UniqueMessage {
    namespace: String,
    job: String,
    unique_id: String,
    key: IdempotencyKey,
    body: String,
    at_most: Duration,
}

impl UniqueMessage {
    /// A message that asks for `job` under `key`.
    pub fn new(
        job: impl Into<String>,
        unique_id: impl Into<String>,
        key: IdempotencyKey,
        payload: &impl Serialize,
    ) -> Result<Self, Error> {
        Ok(Self {
            namespace: "default".to_owned(),
            job: job.into(),
            unique_id: unique_id.into(),
            key,
            body: xml_json(serde_json::to_string(payload).map_err(refused)?),
            at_most: LONGEST,
        })
    }

    /// The namespace of the worker, where it has one of its own.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// One per period: from then on another may be sent, even if this one still waits in the queue or
    /// runs.
    /// Without it that is so after 14 days, when no queue has it any more.
    #[must_use]
    pub fn at_most_for(mut self, period: Duration) -> Self {
        self.at_most = period.min(LONGEST);
        self
    }

    /// Sends it by way of the outbox, unless there is one already. Answers whether it did: there is
    /// no moment at which it counts as there and could still get lost.
    pub async fn send(self, outbox: &dyn Outbox) -> Result<bool, Error> {
        let now = SystemClock.now();
        let entry = OutboxEntry {
            order_key: unique_row(&self.namespace, &self.job, &self.unique_id),
            event_id: IdempotencyKey::new(UNIQUE).map_err(refused)?,
            event: self.job,
            body: self.body,
            created_at: now,
            unique: Some(Unique {
                key: self.key,
                nonce: OsEntropy.claim_id().as_str().to_owned(),
                until: now + self.at_most,
            }),
            trace: None,
        };
        entry.checked()?;
        outbox.add_unique(&entry, now).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_its_payload_says_a_queue_takes_it() {
        let entry = entry("said", &"\u{1} \u{fffe} \u{ffff}").unwrap();
        assert_eq!(entry.body, r#""\u0001 \ufffe \uffff""#);
    }
}
