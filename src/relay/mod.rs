//! The relay: sends on what is in an outbox.
//!
//! The guarantee: an event that was committed is sent on at least once, each time under its own id;
//! events of one order key go one after another, and one that cannot go holds up those behind it
//! until it has gone or is in quarantine.
//!
//! To the relay an event is a message like any other: the job of its name is run under its id as
//! key, with the claims, retries and effects that every job has. So two relays, or a relay and its
//! successor, do not send one event at the same time, and who receives an event that was sent
//! twice knows it by its id.

mod poll;
mod source;
mod stream;
mod sweep;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use tracing::warn;

use crate::error::Error;
use crate::front::{
    ATTRIBUTE_UNIQUE, Asks, Attribute, Delay, Mark, Message, Placed, Queue, run_batch,
};
use crate::protocol::{ATTRIBUTE_TRACE, Fingerprint, OutboxEntry, Timestamp, Unique};
use crate::runtime::before;
use crate::service::{Deadline, UniqueRow, Worker};
use crate::store::Outbox;

pub use source::Source;
pub use sweep::Swept;

/// How many rows are removed at once.
const AT_ONCE: usize = 16;
/// When an entry is tried again of which nobody has said when.
const PAUSE: Duration = Duration::from_secs(5);

/// Positions of entries that are still to go, and when each is due, if that is known.
type Due = HashMap<usize, Option<Timestamp>>;

/// Sends on what is in an outbox.
#[derive(Clone)]
pub struct Relay {
    worker: Worker,
    outbox: Arc<dyn Outbox>,
    queue: Arc<dyn Queue>,
}

impl Relay {
    /// A relay of the events in `outbox`: `worker` has a job for each, and `queue` takes what
    /// cannot be sent on and the messages that are to be there once.
    pub fn new(worker: Worker, outbox: Arc<dyn Outbox>, queue: Arc<dyn Queue>) -> Self {
        Self { worker, outbox, queue }
    }

    /// The relay of the outbox that `worker`'s own store has; `None` if it has none.
    pub fn of(worker: &Worker, queue: Arc<dyn Queue>) -> Option<Self> {
        Some(Self::new(worker.clone(), worker.outbox()?, queue))
    }

    /// Sends entries on, and answers the positions of those that are still to go, with when they
    /// are due if that is known. Those are given back to the outbox.
    async fn send_on(&self, entries: &[OutboxEntry], deadline: Deadline) -> Due {
        let all: Vec<usize> = (0..entries.len()).collect();
        let due = self.try_each(entries, &all, deadline).await;
        self.put_back(entries, &due, deadline).await;
        due
    }

    /// Tries each of these entries once.
    async fn try_each(
        &self,
        entries: &[OutboxEntry],
        positions: &[usize],
        deadline: Deadline,
    ) -> Due {
        let of = |at: &usize| entries.get(*at).map(|entry| (*at, entry));
        let (unique, events): (Vec<_>, Vec<_>) =
            positions.iter().filter_map(of).partition(|(_, entry)| entry.unique.is_some());
        let messages: Vec<_> = events.iter().map(|(_, entry)| self.event(entry)).collect();
        let queue = Later {
            queue: self.queue.clone(),
            due: Mutex::default(),
            now: self.worker.clock().now(),
        };
        let failed: HashSet<String> =
            run_batch(&self.worker, &queue, &messages, deadline).await.into_iter().collect();
        let mut due = queue.due.into_inner().unwrap_or_else(PoisonError::into_inner);

        let mut left = Due::new();
        let mut gone: Vec<&OutboxEntry> = Vec::new();
        for (at, entry) in events {
            match failed.contains(entry.event_id.as_str()) {
                true => drop(left.insert(at, due.remove(entry.event_id.as_str()))),
                false => gone.push(entry),
            }
        }
        for (at, entry) in unique {
            match self.is_in_the_queue(entry, deadline).await {
                true => gone.push(entry),
                false => drop(left.insert(at, None)),
            }
        }
        futures_util::stream::iter(gone)
            .for_each_concurrent(AT_ONCE, |entry| self.gone(entry, deadline))
            .await;
        left
    }

    /// The event as a message that asks for the job of its name.
    fn event(&self, entry: &OutboxEntry) -> Message {
        let key = entry.event_id.as_str();
        Message {
            id: key.to_owned(),
            group: Some(group(&entry.order_key)),
            sent_at: Some(entry.created_at),
            asks: Some(Asks { job: entry.event.clone(), key: entry.event_id.clone() }),
            // For whoever finds it in quarantine, and sends it to the queue from there.
            ..self.message(entry, key)
        }
    }

    fn message(&self, entry: &OutboxEntry, key: &str) -> Message {
        let rules = self.worker.message_rules();
        let attributes =
            [(&rules.job_attribute, entry.event.as_str()), (&rules.key_attribute, key)];
        let mut attributes: BTreeMap<_, _> =
            attributes.map(|(name, value)| (name.clone(), Attribute::text(value))).into();
        let trace = entry.trace.as_ref().map(|trace| Attribute::text(trace.as_str()));
        attributes.extend(trace.map(|trace| (ATTRIBUTE_TRACE.to_owned(), trace)));
        Message { attributes, body: Some(entry.body.clone()), ..Message::default() }
    }

    /// Sees that a unique message has gone to the worker's queue. Answers whether that is certain.
    async fn is_in_the_queue(&self, entry: &OutboxEntry, deadline: Deadline) -> bool {
        let sent = before(self.worker.clock(), deadline.settled, self.to_the_queue(entry)).await;
        let why = match sent {
            Some(Ok(Placed::Sent)) => return true,
            Some(Ok(Placed::Left(why))) => why.to_owned(),
            Some(Err(error)) => error.to_string(),
            None => "no answer in time".to_owned(),
        };
        warn!(row = entry.order_key, job = entry.event, error = why, "a unique message waits");
        false
    }

    async fn to_the_queue(&self, entry: &OutboxEntry) -> Result<Placed, Error> {
        let Some(Unique { key, nonce, .. }) = &entry.unique else {
            return Ok(Placed::Left("it is none"));
        };
        // The stream brings it again with whatever is behind what cannot go: once is enough.
        if !self.outbox.is_unsent(entry).await? {
            return Ok(Placed::Sent);
        }
        let mut message = self.message(entry, key.as_str());
        message.id.clone_from(nonce);
        message.group = Some(group(&entry.order_key));
        let row = UniqueRow { row: entry.order_key.clone(), nonce: nonce.clone() };
        let clears = Attribute::text(row.to_string());
        message.attributes.insert(ATTRIBUTE_UNIQUE.to_owned(), clears);
        self.queue.send(&message).await
    }

    /// A row that stays is sent on again, and known by its id.
    async fn gone(&self, entry: &OutboxEntry, deadline: Deadline) {
        let clock = self.worker.clock();
        let told = before(clock, deadline.told, self.outbox.sent(entry, clock.now())).await;
        let why = match told {
            Some(Ok(())) => return,
            Some(Err(error)) => error.to_string(),
            None => "no answer in time".to_owned(),
        };
        warn!(event_id = entry.event_id.as_str(), error = why, "sent on, but still in the outbox");
    }

    async fn put_back(&self, entries: &[OutboxEntry], due: &Due, deadline: Deadline) {
        let clock = self.worker.clock();
        for (at, when) in due {
            let Some(entry) = entries.get(*at) else {
                continue;
            };
            let when = when.unwrap_or(clock.now() + PAUSE);
            let put = before(clock, deadline.told, self.outbox.put_back(entry, when)).await;
            if let Some(Err(error)) = put {
                warn!(event_id = entry.event_id.as_str(), %error, "not put back; it waits longer");
            }
        }
    }
}

/// An order key as a message group: SQS takes 128 characters that are visible.
fn group(order_key: &str) -> String {
    let fits = order_key.len() <= 128 && order_key.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { order_key.to_owned() } else { Fingerprint::of(order_key.as_bytes()).to_string() }
}

/// The queue of a relay: what is put off is noted.
struct Later {
    queue: Arc<dyn Queue>,
    due: Mutex<HashMap<String, Timestamp>>,
    now: Timestamp,
}

#[async_trait]
impl Queue for Later {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        self.queue.quarantine(message, mark).await
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        for Delay { message, seconds } in delays {
            due.insert(message.id.clone(), self.now + Duration::from_secs(seconds.into()));
        }
    }

    async fn send(&self, message: &Message) -> Result<Placed, Error> {
        self.queue.send(message).await
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("worker", &self.worker).finish_non_exhaustive()
    }
}
