//! One queue: visibility timeouts, receive counts, a dead-letter queue, groups in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;
use crate::front::{Delay, Mark, Message, Placed, Queue, carried};
use crate::protocol::Timestamp;
use crate::runtime::Clock;

/// A queue's settings. A name that ends in `.fifo` makes a FIFO queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// The queue's name.
    pub name: String,
    /// For how long a received message is hidden.
    pub visibility: Duration,
    /// After this many receives a message goes to the dead-letter queue instead.
    pub max_receives: u32,
}

impl Default for QueueSettings {
    /// `local`, three minutes, a thousand receives.
    fn default() -> Self {
        Self { name: "local".to_owned(), visibility: Duration::from_secs(180), max_receives: 1000 }
    }
}

/// An at-least-once queue with a dead-letter queue. Cheap to clone; clones are the same queue.
#[derive(Clone)]
pub struct LocalQueue {
    settings: Arc<QueueSettings>,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By order of arrival.
    messages: BTreeMap<u64, Stored>,
    dead: BTreeMap<u64, Stored>,
    last: u64,
    receives: u64,
}

#[derive(Clone)]
struct Stored {
    message: Message,
    receives: u32,
    visible_at: Timestamp,
}

impl State {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The place of the message that this receipt, and no later one, was given for.
    fn place(&self, receipt: &str) -> Option<u64> {
        let found = self
            .messages
            .iter()
            .find(|(_, stored)| stored.message.receipt.as_deref() == Some(receipt));
        found.map(|(place, _)| *place)
    }
}

impl LocalQueue {
    /// An empty queue on this clock.
    pub fn new(settings: QueueSettings, clock: Arc<dyn Clock>) -> Self {
        Self { settings: Arc::new(settings), clock, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a job under a key; `payload` is the body as it is. Answers the message's id.
    pub fn send(&self, job: &str, key: &str, payload: impl fmt::Display) -> String {
        self.send_message(Message::new(job, key, payload.to_string()))
    }

    /// Sends a message: its body, attributes and group. Answers the id it is given.
    pub fn send_message(&self, message: Message) -> String {
        self.put(message, self.clock.now())
    }

    fn put(&self, message: Message, now: Timestamp) -> String {
        let mut state = self.state();
        let place = state.next();
        let id = format!("{}-{place}", self.settings.name);
        let message = Message {
            id: id.clone(),
            receipt: None,
            sent_at: Some(now),
            source_arn: Some(self.arn()),
            // A queue carries a body and attributes, and they say it.
            asks: None,
            ..message
        };
        state.messages.insert(place, Stored { message, receives: 0, visible_at: now });
        id
    }

    fn arn(&self) -> String {
        format!("arn:aws:sqs:local:000000000000:{}", self.settings.name)
    }

    fn is_fifo(&self) -> bool {
        self.settings.name.ends_with(".fifo")
    }

    /// Up to `most` visible messages, hidden from now on. Of a FIFO group with a hidden message
    /// none is received.
    pub fn receive(&self, most: usize) -> Vec<Message> {
        let now = self.clock.now();
        let mut state = self.state();
        let mut blocked: BTreeSet<Option<String>> = BTreeSet::new();
        if self.is_fifo() {
            let hidden = state.messages.values().filter(|stored| stored.visible_at > now);
            blocked.extend(hidden.map(|stored| stored.message.group.clone()));
        }
        let visible: Vec<u64> = state
            .messages
            .iter()
            .filter(|(_, stored)| stored.visible_at <= now)
            .filter(|(_, stored)| !blocked.contains(&stored.message.group) || !self.is_fifo())
            .map(|(place, _)| *place)
            .collect();
        let mut received = Vec::new();
        for place in visible {
            if received.len() == most {
                break;
            }
            let receipt = state.receives + 1;
            let Some(stored) = state.messages.get_mut(&place) else { continue };
            if stored.receives >= self.settings.max_receives {
                if let Some(dead) = state.messages.remove(&place) {
                    state.dead.insert(place, dead);
                }
                continue;
            }
            stored.receives += 1;
            stored.visible_at = now + self.settings.visibility;
            stored.message.receipt = Some(format!("receipt-{receipt}"));
            received.push(stored.message.clone());
            state.receives = receipt;
        }
        received
    }

    /// Deletes the message that was received with this receipt. A receipt that is no longer the
    /// message's last deletes nothing.
    pub fn delete(&self, receipt: &str) -> bool {
        let mut state = self.state();
        let place = state.place(receipt);
        place.is_some_and(|place| state.messages.remove(&place).is_some())
    }

    /// Shows the message that was received with this receipt again after `wait`.
    pub fn change_visibility(&self, receipt: &str, wait: Duration) {
        let at = self.clock.now() + wait;
        let mut state = self.state();
        if let Some(place) = state.place(receipt)
            && let Some(stored) = state.messages.get_mut(&place)
        {
            stored.visible_at = at;
        }
    }

    /// When the next message can be received; `None` if there is none, hidden or not.
    pub fn next_visible(&self) -> Option<Timestamp> {
        let state = self.state();
        let visible = |stored: &Stored| stored.visible_at;
        if !self.is_fifo() {
            return state.messages.values().map(visible).min();
        }
        // A group is received from once none of it is hidden.
        let mut groups: BTreeMap<&Option<String>, Timestamp> = BTreeMap::new();
        for stored in state.messages.values() {
            let at = groups.entry(&stored.message.group).or_default();
            *at = visible(stored).max(*at);
        }
        groups.into_values().min()
    }

    /// How many messages there are, hidden ones included.
    pub fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// Whether there is no message, hidden ones included.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often messages were received.
    pub fn deliveries(&self) -> u64 {
        self.state().receives
    }

    /// The messages in the dead-letter queue.
    pub fn dead(&self) -> Vec<Message> {
        self.state().dead.values().map(|stored| stored.message.clone()).collect()
    }

    /// Moves the dead letters back, as new messages with new ids and a new time. Answers how many.
    pub fn redrive(&self) -> usize {
        let dead = std::mem::take(&mut self.state().dead);
        let now = self.clock.now();
        let redriven = dead.len();
        for stored in dead.into_values() {
            self.put(stored.message, now);
        }
        redriven
    }

    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }
}

#[async_trait]
impl Queue for LocalQueue {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        let (_, attributes) = match carried(message, mark) {
            Ok(carried) => carried,
            Err(why) => return Ok(Placed::Left(why)),
        };
        let now = self.clock.now();
        let mut state = self.state();
        let place = state.next();
        let id = format!("{}-dead-{place}", self.settings.name);
        let message = Message {
            id,
            attributes,
            receipt: None,
            sent_at: Some(now),
            asks: None,
            ..message.clone()
        };
        state.dead.insert(place, Stored { message, receives: 0, visible_at: now });
        Ok(Placed::Sent)
    }

    async fn send(&self, message: &Message) -> Result<Placed, Error> {
        self.send_message(message.clone());
        Ok(Placed::Sent)
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        for delay in delays {
            if let Some(receipt) = &delay.message.receipt {
                self.change_visibility(receipt, Duration::from_secs(delay.seconds.into()));
            }
        }
    }
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue").field("settings", &self.settings).finish_non_exhaustive()
    }
}
