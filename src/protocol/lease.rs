//! A lease that is renewed while its job runs: how long, when again, and when it is given up.

use std::time::Duration;

use super::{Timestamp, handler_stop};

/// The least time between two renewals, so that a store that fails at once is not asked in a loop.
const PAUSE: Duration = Duration::from_millis(100);

/// A lease of this length at a time, up to the attempt's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    length: Duration,
    bound: Timestamp,
}

impl Lease {
    /// A lease of `length` at a time, which never goes beyond `bound`.
    pub const fn new(length: Duration, bound: Timestamp) -> Self {
        Self { length, bound }
    }

    /// Until when a claim is believed that is taken or renewed at `now`.
    pub fn until(self, now: Timestamp) -> Timestamp {
        (now + self.length).min(self.bound)
    }

    /// When the handler must have ended unless the lease, which ends at `until`, is renewed before.
    /// The last lease has the margin of the attempt itself, which `last` knows.
    pub fn stop(self, until: Timestamp, last: Timestamp) -> Timestamp {
        if until >= self.bound { last } else { handler_stop(until - self.length, until).min(last) }
    }

    /// When to renew next: once a third is over of what is left until `stop`, of one lease at most.
    /// After a failure the same again, so that tries come closer as the time runs out.
    pub fn renew_at(self, now: Timestamp, stop: Timestamp) -> Timestamp {
        now + (stop.since(now).min(self.length) / 3).max(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_is_of_its_length_and_never_beyond_the_bound() {
        let lease = Lease::new(SECOND * 30, NOW + SECOND * 40);
        assert_eq!(lease.until(NOW), NOW + SECOND * 30);
        assert_eq!(lease.until(NOW + SECOND * 20), NOW + SECOND * 40);
    }

    #[test]
    fn the_handler_stops_before_a_lease_that_is_not_renewed_ends() {
        let (bound, last) = (NOW + SECOND * 1000, NOW + SECOND * 998);
        let stop = |length| Lease::new(length, bound).stop(NOW + length, last);
        assert_eq!(stop(SECOND * 30), NOW + SECOND * 28);
        assert_eq!(stop(SECOND), NOW + Duration::from_millis(900));
        assert_eq!(stop(SECOND * 1000), last, "the last lease has the attempt's own margin");
    }

    #[test]
    fn it_is_renewed_at_a_third_and_tried_again_ever_sooner() {
        let lease = Lease::new(SECOND * 30, NOW + SECOND * 100_000);
        let stop = NOW + SECOND * 27;
        let mut now = NOW;
        let mut waits = Vec::new();
        while now < stop {
            let next = lease.renew_at(now, stop);
            waits.push(next.since(now).as_millis());
            now = next;
        }
        assert_eq!(waits[..3], [9000, 6000, 4000]);
        assert!(waits.iter().all(|wait| *wait >= 100) && waits.len() < 25, "{waits:?}");
    }

    #[test]
    fn a_stop_that_is_far_away_does_not_make_it_late() {
        let lease = Lease::new(SECOND * 30, NOW + SECOND * 100_000);
        assert_eq!(lease.renew_at(NOW, NOW + SECOND * 100_000), NOW + SECOND * 10);
    }
}
