//! Time, randomness and a store that a test has in its hand.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::{Error, ErrorKind};
use crate::protocol::{ClaimId, ConditionalWrite, Record, RecordId, Status, Timestamp};
use crate::runtime::{Clock, Entropy};
use crate::store::{Commit, Cursor, Page, StagedWrite, Store};

/// Tokio's clock from a fixed start. In a test with `#[tokio::test(start_paused = true)]` time
/// stands still while there is work and leaps when there is none.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl VirtualClock {
    /// A clock that shows `start` now.
    #[allow(clippy::disallowed_methods, reason = "tokio's clock is the one a test can pause")]
    pub fn new(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.start + self.origin.elapsed()
    }

    #[allow(clippy::disallowed_methods, reason = "tokio's clock is the one a test can pause")]
    async fn sleep_until(&self, at: Timestamp) {
        tokio::time::sleep(at.remaining(self.now())).await;
    }
}

/// Claim ids that count up from a seed, and a fixed jitter.
#[derive(Debug)]
pub struct SeededEntropy {
    next: AtomicU64,
    jitter: f64,
}

impl SeededEntropy {
    /// Claim ids from `seed` on; `jitter` in 0..1.
    pub fn new(seed: u64, jitter: f64) -> Self {
        Self { next: AtomicU64::new(seed), jitter }
    }
}

impl Entropy for SeededEntropy {
    fn claim_id(&self) -> ClaimId {
        ClaimId::new(format!("claim-{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    fn jitter(&self) -> f64 {
        self.jitter
    }
}

/// What goes wrong with one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It does not land, and the store does not say so.
    LoseRequest,
    /// It lands, and the store does not say so.
    LoseReply,
    /// It does not land: another transaction is in the way.
    Contend,
    /// It does not land, and the store refuses it for good.
    Refuse,
    /// It does not land, and the store never answers.
    Hang,
    /// It lands, and the store never answers.
    HangAfter,
}

/// A store whose commits go wrong as told, in order; after that, well.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    script: Mutex<VecDeque<Fault>>,
    commits: AtomicUsize,
}

impl FaultStore {
    /// `inner`, with `script` for its next commits.
    pub fn new(inner: Arc<dyn Store>, script: impl IntoIterator<Item = Fault>) -> Self {
        Self {
            inner,
            script: Mutex::new(script.into_iter().collect()),
            commits: AtomicUsize::new(0),
        }
    }

    /// How many commits were asked for.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }

    fn next(&self) -> Fault {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        script.pop_front().unwrap_or(Fault::None)
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.inner.load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let lost = |detail: &str| {
            Err(Error::new(ErrorKind::StoreUnavailable, "commit").with_detail(detail))
        };
        match self.next() {
            Fault::None => self.inner.commit(write, staged).await,
            Fault::LoseRequest => lost("the request was lost"),
            Fault::LoseReply => {
                self.inner.commit(write, staged).await?;
                lost("the reply was lost")
            }
            Fault::Contend => Err(Error::new(ErrorKind::StoreContended, "commit")),
            Fault::Refuse => Err(Error::new(ErrorKind::StoreRefused, "commit")),
            Fault::Hang => std::future::pending().await,
            Fault::HangAfter => {
                self.inner.commit(write, staged).await?;
                std::future::pending().await
            }
        }
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.inner.scan(parked, after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.inner.accepts(staged)
    }
}

impl std::fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultStore").field("script", &self.script).finish_non_exhaustive()
    }
}
