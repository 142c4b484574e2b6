//! Keeps messages hidden for longer than their queue's visibility timeout, while their jobs run.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::message::Message;
use super::queue::{Delay, Queue};
use crate::protocol::Timestamp;
use crate::runtime::{Clock, before};
use crate::service::{Deadline, Hidden};

/// The messages of a lane: that whose job runs, those that wait for it, and those that are done and
/// not yet deleted. Visible again, they would be received by another worker meanwhile.
pub(super) struct Hiding<'a> {
    messages: Vec<&'a Message>,
    clock: &'a dyn Clock,
    queue: &'a dyn Queue,
    /// No queue hides a message beyond this.
    hard: Timestamp,
    length: Duration,
    hidden_at: Mutex<Timestamp>,
}

impl<'a> Hiding<'a> {
    /// Of messages that were received just now. `None` where claims are not renewed.
    pub fn new(
        clock: &'a dyn Clock,
        queue: &'a dyn Queue,
        deadline: Deadline,
        messages: Vec<&'a Message>,
    ) -> Option<Self> {
        let hidden_at = Mutex::new(clock.now());
        let hard = deadline.hard;
        deadline.lease.map(|length| Self { messages, clock, queue, hard, length, hidden_at })
    }

    /// Another message of the lane is about to run: many short ones take as long as a long one.
    pub async fn in_turn(&self) {
        let third = self.length / 3;
        let hidden_at = *self.hidden_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if now >= hidden_at + third {
            before(self.clock, now + third, self.hide(self.length)).await;
        }
    }
}

#[async_trait]
impl Hidden for Hiding<'_> {
    async fn hide(&self, length: Duration) {
        let now = self.clock.now();
        let seconds = length.min(self.hard.remaining(now)).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        // Zero would show it.
        if seconds == 0 {
            return;
        }
        let delays = self.messages.iter().map(|message| Delay { message, seconds });
        self.queue.delay(delays.collect()).await;
        *self.hidden_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}
