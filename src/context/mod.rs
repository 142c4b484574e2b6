//! What a handler knows of its attempt, and where it declares effects and staged writes.

mod effects;
mod journal;
#[cfg(any(test, feature = "test-util"))]
mod observer;
mod outbox;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::effect::Effect;
use crate::error::{Error, HandlerError};
use crate::protocol::{
    FencingToken, Held, IdempotencyKey, RecordId, Retention, Timestamp, TraceParent,
};
use crate::runtime::Clock;
use crate::service::Commits;
use crate::store::StagedWrite;
use crate::telemetry::{Latency, Timed};

pub(crate) use journal::{Journal, Staged};
#[cfg(any(test, feature = "test-util"))]
pub use observer::{EffectCall, EffectObserver, Guarantee};

/// One attempt at one job. Cheap to clone; worthless once the attempt has ended.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

struct Attempt {
    about: About,
    commits: Commits,
    journal: Mutex<Option<Journal>>,
}

/// What stays the same during an attempt.
#[derive(Clone)]
pub(crate) struct About {
    pub id: RecordId,
    pub job: String,
    pub key: IdempotencyKey,
    pub attempt: u32,
    pub token: FencingToken,
    pub message_id: Option<String>,
    /// The trace its message belongs to.
    pub trace: Option<TraceParent>,
    /// When the handler is stopped.
    pub stop: Timestamp,
    /// How far clocks may differ.
    pub skew: Duration,
    /// Nothing is claimed: there is nothing yet to remember an effect by.
    pub is_fused: bool,
    /// What stands for the outside world, when things are only tried out.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only requests go outside"))]
    pub outside: Option<SocketAddr>,
    /// What sees its effects, in a test.
    #[cfg(any(test, feature = "test-util"))]
    pub observer: Option<Arc<dyn EffectObserver>>,
}

impl Context {
    pub(crate) fn new(about: About, commits: Commits, held: Held) -> Self {
        let journal = Mutex::new(Some(Journal::new(held)));
        Self { attempt: Arc::new(Attempt { about, commits, journal }) }
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.attempt.about.job
    }

    /// The operation's key, as the producer gave it. Keep it out of logs at `info`.
    pub fn key(&self) -> &IdempotencyKey {
        &self.attempt.about.key
    }

    /// The digest that stands for the key in logs.
    pub fn id(&self) -> &RecordId {
        &self.attempt.about.id
    }

    /// Which attempt this is, from 1. In a fused job, which knows its record only at its end, 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.about.attempt
    }

    /// This claim's fencing token: a resource that remembers the highest it has seen can refuse a
    /// late owner. In a fused job there is none, and this is 1.
    pub fn token(&self) -> FencingToken {
        self.attempt.about.token
    }

    /// The queue's id of the message. For people: a redrive changes it.
    pub fn message_id(&self) -> Option<&str> {
        self.attempt.about.message_id.as_deref()
    }

    /// When the handler is stopped, if it has not ended by then. Outside Lambda, where its lease is
    /// renewed, it is stopped before that if the lease is lost or cannot be renewed.
    pub fn stop(&self) -> Timestamp {
        self.attempt.about.stop
    }

    /// Where requests go instead of to their hosts, when things are only tried out.
    #[cfg(feature = "http")]
    pub(crate) fn outside(&self) -> Option<SocketAddr> {
        self.attempt.about.outside
    }

    /// Now, by the worker's clock.
    pub fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Declares a side effect. Its name is part of the key its provider sees: never rename it.
    pub fn effect(&self, name: impl Into<String>) -> Effect {
        Effect::new(self.clone(), name.into())
    }

    /// Adds a write that commits together with the completion, or not at all: exactly once. The
    /// error names what this store takes instead; a row is staged once. Nothing is written if the
    /// handler fails. If the
    /// write's own condition does not hold, the job fails for good: see [`stage_or`](Self::stage_or).
    pub async fn stage(&self, write: impl Into<StagedWrite>) -> Result<(), HandlerError> {
        self.add(write.into(), None).await
    }

    /// The same, and says what it means if the write's condition does not hold: out of stock, say,
    /// which is terminal, or not yet there, which is worth trying again.
    pub async fn stage_or(
        &self,
        write: impl Into<StagedWrite>,
        refused: HandlerError,
    ) -> Result<(), HandlerError> {
        self.add(write.into(), Some(refused)).await
    }

    async fn add(
        &self,
        write: StagedWrite,
        refused: Option<HandlerError>,
    ) -> Result<(), HandlerError> {
        self.attempt.commits.store().accepts(&write).map_err(HandlerError::terminal)?;
        let mut journal = self.attempt.journal.lock().await;
        journal.as_mut().ok_or_else(is_over)?.staged.push(write, refused)
    }

    /// How far the clocks of workers may differ.
    pub(crate) fn skew(&self) -> Duration {
        self.attempt.about.skew
    }

    /// How long an intent may take to be written, until it is dated anew.
    pub(crate) fn intent_takes(&self) -> Duration {
        self.skew().max(Duration::from_secs(1))
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.attempt.commits.clock()
    }

    /// Measures a call of an effect's provider, until the answer is dropped.
    pub(crate) fn timed(&self) -> Timed<'_> {
        self.attempt.commits.meter().timed(Latency::Effect, self.clock())
    }

    /// Renews the claim until `lease_until`, or finds out within `by` that it cannot be. Answers
    /// false if the claim is lost, and `None` once the attempt has ended.
    pub(crate) async fn renew(
        &self,
        lease_until: Timestamp,
        retention: Retention,
        by: Timestamp,
    ) -> Option<Result<bool, Error>> {
        let mut journal = self.attempt.journal.lock().await;
        let kept = (retention, self.skew());
        Some(journal.as_mut()?.renew(&self.attempt.commits, lease_until, kept, by).await)
    }

    /// Ends the attempt: whoever still holds a clone can begin and write nothing more.
    pub(crate) async fn close(&self) -> Option<Journal> {
        self.attempt.journal.lock().await.take()
    }
}

fn is_over() -> HandlerError {
    HandlerError::retryable("the attempt is over; nothing more can be done in its name")
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { id, job, attempt, token, .. } = &self.attempt.about;
        let mut shown = f.debug_struct("Context");
        shown.field("id", id).field("job", job).field("attempt", attempt).field("token", token);
        shown.finish_non_exhaustive()
    }
}
