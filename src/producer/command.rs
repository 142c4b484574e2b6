//! One command, as its producer accepts it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::protocol::TraceParent;
use crate::protocol::{IdempotencyKey, xml_json};

/// A command: a job, the key of the operation, and the payload. `Debug` shows the job only.
///
/// The key is the caller's, made when the command was accepted and the same each time it is sent.
#[derive(Clone, PartialEq)]
pub struct Command {
    pub(super) job: String,
    pub(super) key: IdempotencyKey,
    pub(super) body: String,
    pub(super) group: Option<String>,
    pub(super) delay: Option<Duration>,
    pub(super) trace: Option<TraceParent>,
}

impl Command {
    /// A command whose payload is `body` as JSON. A worker compares payloads under one key: what is
    /// new at each attempt (a time, a request's id) does not belong in it.
    pub fn new(
        job: impl Into<String>,
        key: IdempotencyKey,
        body: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::raw(job, key, xml_json(serde_json::to_string(body)?)))
    }

    /// A command whose payload is this text as it is: JSON that is written already, or text for a
    /// job that takes text.
    pub fn raw(job: impl Into<String>, key: IdempotencyKey, body: impl Into<String>) -> Self {
        let (job, body) = (job.into(), body.into());
        Self { job, key, body, group: None, delay: None, trace: None }
    }

    /// The message group. A FIFO queue needs one and keeps its messages in order; a standard queue
    /// serves groups fairly, and in no order.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// How long the queue keeps it to itself: whole seconds, rounded up, at most 15 minutes. FIFO
    /// queues know a delay of the whole queue only.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The trace it belongs to.
    #[must_use]
    pub fn traceparent(mut self, trace: TraceParent) -> Self {
        self.trace = Some(trace);
        self
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Command({})", self.job)
    }
}
