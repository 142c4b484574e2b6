//! What a worker in drill mode does beside its work: it puts down what happens, and dies where it is
//! told to, once.

use std::process::abort;

use super::ledger::Ledger;
use super::row::{Event, Row};
use super::scenario::{DrillKey, Point};
use crate::error::Error;
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};

pub(super) struct Playing {
    pub ledger: Ledger,
    pub clock: SystemClock,
    /// Tells this process from others.
    worker: String,
}

impl Playing {
    pub fn new(ledger: Ledger) -> Self {
        let worker = OsEntropy.claim_id().as_str().chars().take(8).collect();
        Self { ledger, clock: SystemClock, worker }
    }

    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// Puts down what happens.
    pub async fn put_down(&self, key: &DrillKey, event: Event) -> Result<(), Error> {
        let row = Row { at: self.clock.now().millis(), worker: self.worker.clone(), event };
        self.ledger.append(key, &row).await
    }

    /// The same where what happened cannot be taken back.
    pub async fn note(&self, key: &DrillKey, event: Event) {
        if let Err(error) = self.put_down(key, event).await {
            tracing::warn!(%error, "the drill's ledger misses a row");
        }
    }

    /// Whether this is the first to do this with a key. It is not done where that cannot be put down.
    pub async fn is_first(&self, key: &DrillKey, what: &str) -> bool {
        self.ledger.first(key, what).await.unwrap_or_else(|error| {
            tracing::warn!(%error, what, "this is not played: it could not be put down");
            false
        })
    }

    /// Ends this process at once if that is to be played here and was not yet. It is remembered
    /// first: a key kills one worker and no more.
    pub async fn crash(&self, key: &DrillKey, at: Point) {
        if key.scenario.crash() != Some(at) {
            return;
        }
        if !self.is_first(key, "crashed").await {
            return;
        }
        self.note(key, Event::Crash { point: at }).await;
        tracing::warn!(scenario = key.scenario.as_str(), "this worker ends here: it is the drill");
        abort();
    }
}
