//! Durations, counted by length: noting one takes as long, whatever there is already.

use std::iter::repeat_n;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Up to here each millisecond is counted for itself.
const EXACT: u32 = 128;
/// Beyond, so many lengths are told apart between a power of two and the next.
const STEPS: u32 = 64;
/// The longest that is told from longer ones: 2^31 ms, 24 days. No queue keeps a message for so long.
const LONGEST_POWER: u32 = 30;
const LENGTHS: u32 = EXACT + (LONGEST_POWER - EXACT.ilog2() + 1) * STEPS;

/// Durations in milliseconds: exact up to 128 ms, beyond within a hundredth.
pub(super) struct Series {
    counts: Box<[AtomicU32]>,
    /// From here on all are 0: most are, and to look at those would be most of the work.
    reach: AtomicUsize,
}

impl Series {
    pub fn new() -> Self {
        let counts = (0..LENGTHS).map(|_| AtomicU32::new(0)).collect();
        Self { counts, reach: AtomicUsize::new(0) }
    }

    pub fn add(&self, took: Duration) {
        let millis = u32::try_from(took.as_millis()).unwrap_or(u32::MAX);
        let at = place(millis);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
            // After the count: whoever takes this reach finds it.
            self.reach.fetch_max(at + 1, Ordering::Release);
        }
    }

    /// Takes out what is there, the shortest first, whether it is looked at or not.
    pub fn take(&self) -> impl Iterator<Item = u32> {
        let reach = self.reach.swap(0, Ordering::Acquire);
        let counts = self.counts.iter().take(reach).zip(0..);
        let there = counts.filter(|(count, _)| count.load(Ordering::Relaxed) > 0);
        // Now: beyond the reach, nobody would find what a half-read answer had left.
        let taken: Vec<_> =
            there.map(|(count, at)| (at, count.swap(0, Ordering::Relaxed))).collect();
        let times = |times| usize::try_from(times).unwrap_or_default();
        taken.into_iter().flat_map(move |(at, count)| repeat_n(length(at), times(count)))
    }
}

/// Where a length is counted.
fn place(millis: u32) -> usize {
    let millis = millis.min((1 << (LONGEST_POWER + 1)) - 1);
    let at = match millis {
        0..EXACT => millis,
        _ => {
            let power = millis.ilog2();
            let step = (millis >> (power - STEPS.ilog2())) - STEPS;
            EXACT + (power - EXACT.ilog2()) * STEPS + step
        }
    };
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// The middle of the lengths that are counted here.
fn length(at: u32) -> u32 {
    match at {
        0..EXACT => at,
        _ => {
            let (power, step) = ((at - EXACT) / STEPS, (at - EXACT) % STEPS);
            let width = 1 << (power + 1);
            (STEPS + step) * width + width / 2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_comes_back_as_it_was_or_within_a_hundredth() {
        let longest = (1u32 << (LONGEST_POWER + 1)) - 1;
        let some = (0..100_000).chain([1 << 20, (1 << 20) - 1, 123_456_789, longest]);
        let mut last = 0;
        for millis in some {
            let back = length(u32::try_from(place(millis)).unwrap());
            match millis {
                0..EXACT => assert_eq!(back, millis),
                _ => assert!(back.abs_diff(millis) <= millis / 100, "{millis} came back as {back}"),
            }
            assert!(back >= last || millis < last, "{millis} is counted below what is shorter");
            last = back;
        }
        assert_eq!(place(longest) + 1, usize::try_from(LENGTHS).unwrap());
    }

    #[test]
    fn what_is_taken_is_gone_and_nothing_is_lost() {
        let series = Series::new();
        for millis in [7, 7, 0, 1000] {
            series.add(Duration::from_millis(millis));
        }
        series.add(Duration::MAX);
        let taken: Vec<u32> = series.take().collect();
        assert_eq!(taken[..3], [0, 7, 7]);
        assert_eq!(taken.len(), 5);
        assert_eq!(series.take().count(), 0);
    }

    #[test]
    fn what_is_taken_and_not_looked_at_does_not_come_back_later() {
        let series = Series::new();
        series.add(Duration::from_millis(5));
        series.add(Duration::from_millis(9));
        assert_eq!(series.take().next(), Some(5));
        series.add(Duration::from_millis(20));
        assert_eq!(series.take().collect::<Vec<_>>(), [20]);
    }
}
