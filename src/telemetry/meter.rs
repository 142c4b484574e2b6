//! What a worker counts and measures.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::series::Series;
use crate::protocol::Timestamp;
use crate::runtime::Clock;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Attempts that were begun: claims taken.
    Claimed,
    /// Messages of jobs that were completed before.
    Replayed,
    /// Messages that came while another attempt was believed to be running.
    Busy,
    /// Attempts whose claim was a successor's before they could be settled.
    LostLease,
    /// Attempts that failed and are due again.
    Retried,
    /// Attempts that completed their job.
    Completed,
    /// Jobs that failed for good.
    Failed,
    /// Messages of jobs with an effect whose outcome cannot be known.
    Unknown,
    /// Messages of which the store did not say what became of them.
    StoreError,
    /// Messages in quarantine, as their job failed.
    QuarantinedFailed,
    /// The same, as an effect's outcome cannot be known.
    QuarantinedUnknown,
    /// The same, as their key was used with another payload.
    QuarantinedMismatch,
    /// The same, as they cannot be run.
    QuarantinedUndecodable,
}

impl Count {
    /// All of them, each at its own place.
    pub const ALL: [Self; 13] = [
        Self::Claimed,
        Self::Replayed,
        Self::Busy,
        Self::LostLease,
        Self::Retried,
        Self::Completed,
        Self::Failed,
        Self::Unknown,
        Self::StoreError,
        Self::QuarantinedFailed,
        Self::QuarantinedUnknown,
        Self::QuarantinedMismatch,
        Self::QuarantinedUndecodable,
    ];

    /// Its metric, and the cause among those of one metric.
    pub const fn name(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Claimed => ("Claimed", None),
            Self::Replayed => ("Replayed", None),
            Self::Busy => ("Busy", None),
            Self::LostLease => ("LostLease", None),
            Self::Retried => ("Retried", None),
            Self::Completed => ("Completed", None),
            Self::Failed => ("Failed", None),
            Self::Unknown => ("Unknown", None),
            Self::StoreError => ("StoreError", None),
            Self::QuarantinedFailed => ("Quarantined", Some("failed")),
            Self::QuarantinedUnknown => ("Quarantined", Some("unknown")),
            Self::QuarantinedMismatch => ("Quarantined", Some("mismatch")),
            Self::QuarantinedUndecodable => ("Quarantined", Some("undecodable")),
        }
    }
}

/// What is measured, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// One call of an effect's provider.
    Effect,
    /// One write to the store, answered or not.
    Store,
    /// From when a message was sent until its job was completed.
    Age,
}

impl Latency {
    /// All of them, each at its own place.
    pub const ALL: [Self; 3] = [Self::Effect, Self::Store, Self::Age];

    /// Its metric.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Effect => "EffectLatency",
            Self::Store => "StoreLatency",
            Self::Age => "Age",
        }
    }
}

/// The counts of one worker and its clones since it was built, and what was measured since that was
/// last taken. To note anything is an addition or two: no lock is taken and nothing is allocated.
pub struct Meter {
    counts: [AtomicU64; Count::ALL.len()],
    series: [Series; Latency::ALL.len()],
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            counts: Count::ALL.map(|_| AtomicU64::new(0)),
            series: Latency::ALL.map(|_| Series::new()),
        }
    }

    pub(crate) fn count(&self, count: Count) {
        if let Some(so_far) = self.counts.get(count as usize) {
            so_far.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn measure(&self, latency: Latency, took: Duration) {
        if let Some(series) = self.series.get(latency as usize) {
            series.add(took);
        }
    }

    /// Measures from now until the answer is dropped: a call that is broken off counts, too.
    pub(crate) fn timed<'a>(&'a self, latency: Latency, clock: &'a dyn Clock) -> Timed<'a> {
        Timed { meter: self, latency, clock, began: clock.now() }
    }

    /// How many there were since the worker was built.
    pub fn counts(&self) -> [u64; Count::ALL.len()] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Takes out what was measured, in milliseconds, the shortest first: exact up to 128 ms, beyond
    /// that within a hundredth.
    pub fn take(&self, latency: Latency) -> impl Iterator<Item = u32> {
        self.series.get(latency as usize).into_iter().flat_map(Series::take)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Measures while it is kept.
pub struct Timed<'a> {
    meter: &'a Meter,
    latency: Latency,
    clock: &'a dyn Clock,
    began: Timestamp,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.meter.measure(self.latency, self.clock.now().since(self.began));
    }
}

impl fmt::Debug for Timed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timed").field("latency", &self.latency).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place() {
        for (at, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, at, "{count:?}");
        }
        for (at, latency) in Latency::ALL.into_iter().enumerate() {
            assert_eq!(latency as usize, at, "{latency:?}");
        }
    }
}
