//! One unit for instants (milliseconds), another for expiry (whole seconds), and no way to
//! compare the two by accident.

use std::time::Duration;

/// An instant: milliseconds since the Unix epoch, by the clock of whoever made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The instant `ms` milliseconds after the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Time left from `now` until `self`; zero once it is past.
    pub fn remaining(self, now: Self) -> Duration {
        self.since(now)
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }
}

impl std::ops::Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A TTL: whole seconds since the Unix epoch, the only form DynamoDB's TTL understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochSeconds(u64);

impl EpochSeconds {
    /// The instant `s` seconds after the Unix epoch.
    pub const fn from_secs(s: u64) -> Self {
        Self(s)
    }

    /// Seconds since the Unix epoch.
    pub const fn secs(self) -> u64 {
        self.0
    }

    /// The first whole second that is not before `at`: rounding down could expire a record early.
    pub fn at_or_after(at: Timestamp) -> Self {
        Self(at.millis().div_ceil(1000))
    }

    /// Whether this expiry is past at `now`.
    pub fn is_past(self, now: Timestamp) -> bool {
        self.0.saturating_mul(1000) <= now.millis()
    }
}

/// How long a settled record is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Never expires. For money.
    Forever,
    /// Expires this long after its last write; at least as long as any late redelivery.
    For(Duration),
}

impl Default for Retention {
    /// 45 days: SQS's 14 days twice (queue and DLQ), one manual redrive, and a margin.
    fn default() -> Self {
        Self::For(Duration::from_secs(45 * 24 * 3600))
    }
}

impl Retention {
    /// The expiry of a record written at `now`, never before `not_before`: a record that expires
    /// under a live lease would let a second worker in.
    pub fn expiry(self, now: Timestamp, not_before: Timestamp) -> Option<EpochSeconds> {
        match self {
            Self::Forever => None,
            Self::For(kept) => Some(EpochSeconds::at_or_after((now + kept).max(not_before))),
        }
    }
}

/// When the handler must have ended: before the lease does, by 2 s or a tenth of what is left at
/// `now`, whichever is less. In that margin the attempt is settled and the batch answered.
pub fn handler_stop(now: Timestamp, lease_until: Timestamp) -> Timestamp {
    let margin = (lease_until.remaining(now) / 10).min(Duration::from_secs(2));
    lease_until - margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_whole_epoch_seconds_rounded_up() {
        let now = Timestamp::from_millis(1_700_000_000_001);
        let expiry = Retention::For(Duration::from_secs(10)).expiry(now, now);
        assert_eq!(expiry, Some(EpochSeconds::from_secs(1_700_000_011)));
        assert_eq!(expiry.map(EpochSeconds::secs), Some(1_700_000_011));
    }

    #[test]
    fn a_record_outlives_the_lease_even_with_a_short_retention() {
        let now = Timestamp::from_millis(1_000_000);
        let lease = now + Duration::from_secs(900);
        let expiry = Retention::For(Duration::from_secs(1)).expiry(now, lease);
        assert_eq!(expiry, Some(EpochSeconds::at_or_after(lease)));
    }

    #[test]
    fn the_handler_stops_before_the_lease_ends() {
        let now = Timestamp::from_millis(0);
        let stop = |left: u64| handler_stop(now, Timestamp::from_millis(left)).millis();
        assert_eq!(stop(60_000), 58_000);
        assert_eq!(stop(1_000), 900);
        assert_eq!(stop(0), 0);
    }
}
