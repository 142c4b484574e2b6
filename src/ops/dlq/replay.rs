//! Bringing dead letters back to their queue.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::drawer::Drawer;
use super::letter::{Filter, Letter};
use crate::error::BoxError;
use crate::front::{Asked, Message, Placed, QUARANTINE_ATTRIBUTE, Queue, asked};
use crate::ops::Desk;
use crate::protocol::{Fingerprint, RecordId, Status, Timestamp};
use crate::runtime::{Clock, SystemClock, Task, spawn};
use crate::service::Delivery;

/// What is to become of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It goes to the queue, and its job runs; once the attempt at work is over, if there is one.
    Runs,
    /// It goes to the queue, and is acknowledged there: its job is done.
    Acknowledged,
    /// It stays: its outcome is unknown, and it would come back.
    ResolveFirst,
    /// It stays: its key is bound to another payload.
    Mismatch,
    /// It stays: no rule here can read it.
    Unreadable,
    /// It stays: it was given up while this went on, perhaps for the second time.
    FailedAgain,
}

impl Fate {
    const fn is_sent(self) -> bool {
        matches!(self, Self::Runs | Self::Acknowledged)
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Acknowledged => "acknowledged: it is done",
            Self::ResolveFirst => "stays: resolve it first",
            Self::Mismatch => "stays: its key is bound to another payload",
            Self::Unreadable => "stays: correct the producer, or ask for --cause undecodable",
            Self::FailedAgain => "stays: it was given up since this began",
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Replayed {
    /// Sent to the queue, or to be sent.
    pub sent: u64,
    /// Left, as they would come back.
    pub left: u64,
    /// Of others, which the filter does not take.
    pub others: u64,
    /// Whether nothing was done.
    pub is_dry: bool,
    /// Whether it was told to stop before the end.
    pub is_interrupted: bool,
}

/// How they are brought back.
pub(in crate::ops) struct Plan<'a> {
    pub filter: &'a Filter,
    pub is_dry: bool,
    /// Messages a second.
    pub rate: u32,
    pub limit: u64,
}

/// Sends each to the queue, then takes it out. Ended between the two it is in both, and its key runs
/// once all the same. A stop is looked for before each.
pub(in crate::ops) async fn replay(
    desk: &Desk,
    drawer: &mut Drawer,
    queue: &dyn Queue,
    plan: &Plan<'_>,
    tell: impl Fn(&Letter, Fate) -> Result<(), BoxError>,
) -> Result<Replayed, BoxError> {
    let (stop, _listening) = stop_signal()?;
    let mut done = Replayed { is_dry: plan.is_dry, ..Replayed::default() };
    let begun = SystemClock.now();
    let mut pace = Pace { begun, next_at: begun };
    loop {
        let messages = drawer.next().await?;
        if messages.is_empty() {
            return Ok(done);
        }
        // What comes after a stop, the limit or an error goes back with the rest.
        let mut coming = messages.into_iter();
        while let Some(message) = coming.next() {
            done.is_interrupted = *stop.borrow();
            let is_over = done.is_interrupted || done.sent >= plan.limit;
            let ended = match is_over {
                true => Ok(Became::Over),
                false => one(desk, drawer, &message, queue, plan, &tell, &mut pace).await,
            };
            match &ended {
                Ok(Became::Gone | Became::Sent) => done.sent += 1,
                Ok(Became::Other) => done.others += 1,
                Ok(Became::Left) => done.left += 1,
                Ok(Became::Over) | Err(_) => {}
            }
            if !matches!(ended, Ok(Became::Gone)) {
                drawer.leave(&message);
            }
            if is_over || ended.is_err() {
                coming.for_each(|message| drawer.leave(&message));
                return ended.map(|_| done);
            }
        }
    }
}

/// What became of one message.
enum Became {
    /// The filter does not take it.
    Other,
    /// It would come straight back.
    Left,
    /// It would be sent.
    Sent,
    /// It was sent and taken out.
    Gone,
    /// Its turn does not come.
    Over,
}

struct Pace {
    begun: Timestamp,
    /// When the next one may be sent.
    next_at: Timestamp,
}

async fn one(
    desk: &Desk,
    drawer: &Drawer,
    message: &Message,
    queue: &dyn Queue,
    plan: &Plan<'_>,
    tell: &impl Fn(&Letter, Fate) -> Result<(), BoxError>,
    pace: &mut Pace,
) -> Result<Became, BoxError> {
    let letter = Letter::of(message, &desk.jobs, &desk.namespace);
    if !plan.filter.takes(&letter, SystemClock.now()) {
        return Ok(Became::Other);
    }
    // What fails again at once would be sent back for ever.
    let fate = match letter.at > pace.begun.millis() {
        true => Fate::FailedAgain,
        false => fate(desk, message, plan.filter).await?,
    };
    let became = match (fate.is_sent(), plan.is_dry) {
        (false, _) => Became::Left,
        (true, true) => Became::Sent,
        (true, false) => Became::Gone,
    };
    if matches!(became, Became::Gone) {
        SystemClock.sleep_until(pace.next_at).await;
        pace.next_at = SystemClock.now() + Duration::from_secs(1) / plan.rate.max(1);
        let mut sent = message.clone();
        sent.attributes.remove(QUARANTINE_ATTRIBUTE);
        if let Placed::Left(why) = queue.send(&sent).await? {
            return Err(why.into());
        }
        drawer.delete(message).await?;
    }
    tell(&letter, fate)?;
    Ok(became)
}

/// What a worker would make of it now. A look, and no promise: what runs is decided there.
async fn fate(desk: &Desk, message: &Message, filter: &Filter) -> Result<Fate, BoxError> {
    let delivery = match asked(message, desk.jobs.message_rules()) {
        Asked::Job(delivery) => delivery,
        Asked::Nothing => return Ok(Fate::Acknowledged),
        // A worker in Rust may have rules of its own.
        Asked::Unclear(_) if filter.names_undecodable() => return Ok(Fate::Runs),
        Asked::Unclear(_) => return Ok(Fate::Unreadable),
    };
    let id = RecordId::new(&desk.namespace, &delivery.job, &delivery.key);
    let Some(record) = desk.store.load(&id).await? else {
        return Ok(Fate::Runs);
    };
    let is_expired = record.expires_at.is_some_and(|at| at.is_past(SystemClock.now()));
    Ok(match record.status {
        Status::Unknown => Fate::ResolveFirst,
        _ if is_expired => Fate::Runs,
        _ if record.is_of_other(fingerprint(desk, &delivery).as_ref()) => Fate::Mismatch,
        Status::Completed => Fate::Acknowledged,
        Status::Claimed | Status::Failed | Status::Released => Fate::Runs,
    })
}

/// Known for jobs that are known here.
fn fingerprint(desk: &Desk, delivery: &Delivery) -> Option<Fingerprint> {
    let job = desk.jobs.get(&delivery.job)?;
    job.fingerprint(&job.payload(&delivery.body).ok()?)
}

/// Turns true at the first SIGINT or SIGTERM, as long as the task is kept.
fn stop_signal() -> Result<(watch::Receiver<bool>, Task<()>), BoxError> {
    let (say, told) = watch::channel(false);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let listening = spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Nobody listens any more if it has ended already.
        let _ = say.send(true);
        std::future::pending::<()>().await;
    });
    Ok((told, listening))
}
