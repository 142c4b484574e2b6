//! The store with a time limit: tries again what may be tried again, and tells a lost reply from
//! a lost lease.

use std::sync::Arc;
use std::time::Duration;

use tracing::field::Empty;
use tracing::{Instrument, info_span};

use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Conflict, Timestamp, resolve_conflict};
use crate::runtime::{Clock, Entropy, before};
use crate::store::{Commit, StagedWrite, Store};
use crate::telemetry::{Latency, Meter, SPANS, failed};

/// A store and what is needed to wait for it.
#[derive(Clone)]
pub(crate) struct Commits {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    meter: Arc<Meter>,
}

/// How often a write is sent at most, where its outcome was not certain.
const TRIES: u32 = 4;
/// How often it is sent anew because another transaction was in the way.
const ROUNDS: u32 = 64;

/// What became of a settling write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It landed, now or before.
    Applied,
    /// The claim is over.
    LostLease,
    /// The staged write at this index refused its condition.
    Refused(usize),
}

impl Commits {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { store, clock, entropy, meter: Arc::new(Meter::new()) }
    }

    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub fn shared_store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    pub fn shared_clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    pub fn entropy(&self) -> &dyn Entropy {
        self.entropy.as_ref()
    }

    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Sends the write until its outcome is certain, at most four times and not after `until`; and
    /// until no other transaction is in its way, for most of that time. Sending it again is safe:
    /// its condition holds once.
    pub async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
        until: Timestamp,
    ) -> Result<Commit, Error> {
        let mut last = None;
        let started = self.clock.now();
        // The rest is for writing that it came to nothing.
        let patience = started + until.since(started) / 4 * 3;
        let mut tries = 0;
        for attempt in 0..ROUNDS {
            if tries == TRIES || self.clock.now() >= until {
                break;
            }
            match before(self.clock(), until, self.sent(write, staged)).await {
                Some(Err(error)) if error.kind() == ErrorKind::StoreContended => {
                    last = Some(error);
                    if self.clock.now() >= patience {
                        break;
                    }
                }
                Some(Err(error)) if error.is_retryable() => {
                    last = Some(error);
                    tries += 1;
                }
                Some(certain) => return certain,
                None => {
                    last = Some(unsaid(write, "no answer within the attempt's time"));
                    break;
                }
            }
            let pause = brief_pause(attempt, self.entropy.jitter());
            self.clock.sleep_until((self.clock.now() + pause).min(until)).await;
        }
        Err(last.unwrap_or_else(|| unsaid(write, "no time was left to send it")))
    }

    /// Sends the write once.
    async fn sent(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let _timed = self.meter.timed(Latency::Store, self.clock());
        let span = info_span!(
            target: SPANS,
            "store write",
            otel.kind = "client",
            otel.status_code = Empty,
        );
        let answer = self.store.commit(write, staged).instrument(span.clone()).await;
        if answer.is_err() {
            failed(&span);
        }
        answer
    }

    /// Sends a write of a claim in hand.
    pub async fn settle(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
        until: Timestamp,
    ) -> Result<Settled, Error> {
        Ok(match self.commit(write, staged, until).await? {
            Commit::Applied => Settled::Applied,
            Commit::Refused { index } => Settled::Refused(index),
            Commit::Conflict(current) => match resolve_conflict(write, current.as_deref()) {
                Conflict::Applied => Settled::Applied,
                Conflict::LostLease => Settled::LostLease,
            },
        })
    }
}

/// The store has not said what became of a write.
fn unsaid(write: &ConditionalWrite, why: &'static str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, "commit").with_id(&write.id).with_detail(why)
}

/// A wait that grows with `attempt` (from 0), drawn from 25 ms to 25 x 2^attempt ms, at most a
/// second.
fn brief_pause(attempt: u32, jitter: f64) -> Duration {
    let ceiling = 25u64.saturating_mul(2u64.saturating_pow(attempt)).min(1000);
    Duration::from_millis(ceiling).mul_f64(jitter.clamp(0.0, 1.0)).max(Duration::from_millis(25))
}
