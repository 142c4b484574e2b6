//! When to try again.

use std::time::Duration;

/// The longest wait taken from a provider's `Retry-After` or made by a policy: SQS hides a message
/// for at most 12 h after it was received, and a little of that is gone by now.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(43_195);

/// How the wait grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backoff {
    Fixed(Duration),
    /// Full jitter, so that jobs that failed together do not come back together.
    Exponential {
        base: Duration,
        cap: Duration,
    },
}

/// How often a job may be tried, and how long it waits between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    backoff: Backoff,
    attempts: u32,
}

impl Default for RetryPolicy {
    /// Five attempts, waiting up to 2, 4, 8 and 16 s.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(2), Duration::from_secs(15 * 60), 5)
    }
}

impl RetryPolicy {
    /// Fails at the first failure. For work that a person replays.
    pub const fn none() -> Self {
        Self { backoff: Backoff::Fixed(Duration::ZERO), attempts: 1 }
    }

    /// Up to `attempts` attempts (at least 1), `delay` apart.
    pub fn fixed(delay: Duration, attempts: u32) -> Self {
        Self { backoff: Backoff::Fixed(delay), attempts: attempts.max(1) }
    }

    /// Up to `attempts` attempts (at least 1); the wait after attempt `n` is drawn from zero to
    /// `base` x 2^(n-1), at most `cap`.
    pub fn exponential(base: Duration, cap: Duration, attempts: u32) -> Self {
        Self { backoff: Backoff::Exponential { base, cap }, attempts: attempts.max(1) }
    }

    /// How many attempts there are.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether attempt number `attempt` (from 1) was the last.
    pub const fn is_spent(&self, attempt: u32) -> bool {
        attempt >= self.attempts
    }

    /// How long all of it may take, from the first attempt's begin to the last one's end, where each
    /// attempt takes `attempt` and each wait is as long as it can be. Without kills: a job whose
    /// worker dies waits for its lease, too.
    pub fn longest(&self, attempt: Duration) -> Duration {
        // By then every wait is as long as it gets.
        let grown = 40.min(self.attempts);
        let waits: Duration = (1..grown).map(|n| self.delay(n, 1.0)).sum();
        let rest = self.delay(grown, 1.0).saturating_mul(self.attempts.saturating_sub(grown));
        waits.saturating_add(rest).saturating_add(attempt.saturating_mul(self.attempts))
    }

    /// The wait after failed attempt number `attempt` (from 1); `jitter` is in 0..1.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let delay = match self.backoff {
            Backoff::Fixed(delay) => delay,
            Backoff::Exponential { base, cap } => {
                let doubled = 2u32.saturating_pow(attempt.saturating_sub(1));
                let ceiling = base.saturating_mul(doubled).min(cap);
                ceiling.min(MAX_RETRY_AFTER).mul_f64(jitter.clamp(0.0, 1.0))
            }
        };
        delay.min(MAX_RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn exponential_doubles_to_its_cap() {
        let policy = RetryPolicy::exponential(SECOND * 2, SECOND * 10, 9);
        let ceilings: Vec<u64> = (1..=5).map(|n| policy.delay(n, 1.0).as_secs()).collect();
        assert_eq!(ceilings, [2, 4, 8, 10, 10]);
        assert_eq!(policy.delay(3, 0.0), Duration::ZERO);
    }

    #[test]
    fn the_budget_counts_attempts() {
        assert!(RetryPolicy::none().is_spent(1));
        let policy = RetryPolicy::fixed(SECOND, 3);
        assert!(!policy.is_spent(2));
        assert!(policy.is_spent(3));
        assert_eq!(policy.attempts(), 3);
    }

    #[test]
    fn the_longest_is_every_wait_and_every_attempt() {
        let policy = RetryPolicy::exponential(SECOND * 2, SECOND * 10, 6);
        assert_eq!(policy.longest(SECOND).as_secs(), 2 + 4 + 8 + 10 + 10 + 6);
        assert_eq!(RetryPolicy::none().longest(SECOND), SECOND);
        assert_eq!(RetryPolicy::fixed(SECOND, 1000).longest(SECOND).as_secs(), 999 + 1000);
        let endless = RetryPolicy::fixed(MAX_RETRY_AFTER, u32::MAX);
        assert!(endless.longest(Duration::MAX) == Duration::MAX);
    }

    proptest! {
        #[test]
        fn no_wait_exceeds_cap_or_queue(attempt in 0u32..10_000, jitter in 0.0f64..1.0, base in 0u64..u64::MAX / 2, cap in 0u64..u64::MAX / 2) {
            let (base, cap) = (Duration::from_secs(base), Duration::from_secs(cap));
            let wait = RetryPolicy::exponential(base, cap, 5).delay(attempt, jitter);
            prop_assert!(wait <= cap.min(MAX_RETRY_AFTER));
            let wait = RetryPolicy::fixed(base, 5).delay(attempt, jitter);
            prop_assert!(wait <= MAX_RETRY_AFTER);
        }
    }
}
