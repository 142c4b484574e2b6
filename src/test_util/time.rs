//! Time and randomness that a test has in its hand.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::protocol::{ClaimId, Timestamp};
use crate::runtime::{Clock, Entropy};

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
