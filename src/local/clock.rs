//! A clock that runs faster than the machine's.

use std::time::Duration;

use async_trait::async_trait;

use crate::protocol::Timestamp;
use crate::runtime::{Clock, SystemClock};

/// Real time, sped up: visibility timeouts of minutes pass in seconds, while what is really done
/// takes the time it takes.
#[derive(Clone, Copy, Debug)]
pub struct FastClock {
    begun: Timestamp,
    factor: u32,
}

impl FastClock {
    /// A clock that starts now and runs `factor` times as fast.
    pub fn new(factor: u32) -> Self {
        Self { begun: SystemClock.now(), factor: factor.max(1) }
    }

    /// Time since the start, on this clock.
    pub fn elapsed(&self) -> Duration {
        self.now().since(self.begun)
    }
}

#[async_trait]
impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        self.begun + SystemClock.now().since(self.begun) * self.factor
    }

    async fn sleep_until(&self, at: Timestamp) {
        let left = at.remaining(self.now()) / self.factor;
        // Rounded up: a millisecond early would make the caller come again at once.
        SystemClock.sleep_until(SystemClock.now() + left + Duration::from_millis(1)).await;
    }
}
