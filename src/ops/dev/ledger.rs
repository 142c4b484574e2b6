//! What happened to each key, as seen from outside the worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::NAMESPACE;
use super::kill::Boundary;
use crate::front::{Asked, Message, asked};
use crate::local::FastClock;
use crate::protocol::{Change, ConditionalWrite, Field, Record, RecordId, Status};
use crate::rules::MessageRules;
use crate::runtime::Clock;

/// Events kept per key.
const MAX_EVENTS: usize = 64;

/// Everything seen so far.
pub struct Ledger {
    clock: FastClock,
    rules: MessageRules,
    keys: Mutex<BTreeMap<RecordId, Story>>,
}

/// What was seen of one key.
#[derive(Clone, Default)]
pub struct Story {
    pub job: String,
    pub key: String,
    /// Messages sent, copies included.
    pub messages: u64,
    /// Times one of them was received.
    pub deliveries: u64,
    /// Attempts that were begun.
    pub claims: u64,
    /// Whether it is known to be completed.
    is_completed: bool,
    /// Attempts that were begun although it was.
    pub reruns: u64,
    /// Attempts that were killed.
    pub kills: u64,
    /// Those among them that may have made a request of which the record knows nothing.
    pub kills_in_flight: u64,
    /// Claims that ended otherwise than completed, of themselves.
    pub failures: u64,
    /// Requests that reached the receiver.
    pub requests: u64,
    /// What their job declares, as the jobs file says it.
    pub guarantee: Option<String>,
    /// Provider keys among them.
    pub provider_keys: BTreeSet<String>,
    /// Where the record stands at the end.
    pub status: Option<Status>,
    /// What happened, when.
    pub events: Vec<(Duration, String)>,
}

impl Ledger {
    pub fn new(clock: FastClock, rules: MessageRules) -> Self {
        Self { clock, rules, keys: Mutex::default() }
    }

    /// Notes a message's record, if the message asks for one.
    fn note_message(&self, message: &Message, change: impl FnOnce(&mut Story) -> Option<String>) {
        let Asked::Job(delivery) = asked(message, &self.rules) else { return };
        let id = RecordId::new(NAMESPACE, &delivery.job, &delivery.key);
        self.note(&id, |story| {
            delivery.key.as_str().clone_into(&mut story.key);
            story.job = delivery.job;
            change(story)
        });
    }

    pub fn sent(&self, message: &Message, copy: usize) {
        self.note_message(message, |story| {
            story.messages += 1;
            (copy == 0).then(|| "sent".to_owned())
        });
    }

    pub fn delivered(&self, messages: &[Message]) {
        for message in messages {
            self.note_message(message, |story| {
                story.deliveries += 1;
                Some(format!("delivered     {}", message.id))
            });
        }
    }

    pub fn claimed(&self, write: &ConditionalWrite) {
        let token = match &write.change {
            Change::Create(record) => Some(record.token.0),
            Change::Update(fields) => fields.iter().find_map(|field| match field {
                Field::Token(token) => Some(token.0),
                _ => None,
            }),
        };
        let how = if token == Some(1) { "claimed      " } else { "taken over   " };
        self.note(&write.id, |story| {
            story.claims += 1;
            story.reruns += u64::from(story.is_completed);
            Some(format!("{how} token {}", token.unwrap_or_default()))
        });
    }

    pub fn refused(&self, write: &ConditionalWrite, record: &Record) {
        let is_live = self.clock.now() < record.lease_until;
        let is_other = match &write.change {
            Change::Create(asked) => {
                matches!((&asked.fingerprint, &record.fingerprint), (Some(a), Some(b)) if a != b)
            }
            Change::Update(_) => false,
        };
        self.note(&record.id, |story| match record.status {
            _ if is_other => Some("mismatch      the key was used with another payload".to_owned()),
            Status::Completed => {
                story.is_completed = true;
                Some("replayed      it is completed".to_owned())
            }
            Status::Claimed if is_live => Some("busy          another attempt holds it".to_owned()),
            _ => None,
        });
    }

    pub fn settled(&self, write: &ConditionalWrite, status: Status) {
        let error = match &write.change {
            Change::Create(record) => record.error.as_deref(),
            Change::Update(fields) => fields.iter().find_map(|field| match field {
                Field::Error(error) => error.as_deref(),
                _ => None,
            }),
        };
        self.note(&write.id, |story| {
            story.is_completed |= status == Status::Completed;
            story.failures += u64::from(status != Status::Completed);
            let why = error.and_then(|error| error.lines().next()).unwrap_or_default();
            Some(format!("{:<13} {why}", status.to_string()).trim_end().to_owned())
        });
    }

    pub fn requested(&self, id: &RecordId, guarantee: Option<&str>, key: Option<&str>, what: &str) {
        self.note(id, |story| {
            story.requests += 1;
            story.guarantee = guarantee.map(str::to_owned);
            story.provider_keys.extend(key.map(str::to_owned));
            let key = key.map(|key| format!(" key {key}")).unwrap_or_default();
            Some(format!("request {:<5} {what}{key}", story.requests))
        });
    }

    /// Whether a request was there, for whoever asks.
    pub fn asked(&self, id: &RecordId) -> bool {
        let mut was_there = false;
        self.note(id, |story| {
            was_there = story.requests > 0;
            let answer = if was_there { "it was done" } else { "it was not done" };
            Some(format!("asked         {answer}"))
        });
        was_there
    }

    pub fn killed(
        &self,
        (at, in_flight): (Option<RecordId>, BTreeSet<RecordId>),
        boundary: Boundary,
    ) {
        for id in in_flight.iter().chain(at.as_ref().filter(|at| !in_flight.contains(at))) {
            self.note(id, |story| {
                story.kills += 1;
                story.kills_in_flight += u64::from(in_flight.contains(id));
                let how =
                    if at.as_ref() == Some(id) { boundary.as_str() } else { "with its batch" };
                Some(format!("KILLED        {how}"))
            });
        }
    }

    /// Killed with its batch while the claim was written. No attempt that anybody saw begin.
    pub fn killed_unsure(&self, ids: &BTreeSet<RecordId>) {
        for id in ids {
            self.note(id, |_| Some("KILLED        with its batch, as it was claimed".to_owned()));
        }
    }

    pub fn stories(&self) -> BTreeMap<RecordId, Story> {
        self.keys().clone()
    }

    fn note(&self, id: &RecordId, change: impl FnOnce(&mut Story) -> Option<String>) {
        let at = self.clock.elapsed();
        let mut keys = self.keys();
        let story = keys.entry(id.clone()).or_default();
        if let Some(event) = change(story)
            && story.events.len() < MAX_EVENTS
        {
            story.events.push((at, event));
        }
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<RecordId, Story>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
