//! Load: thousands of messages, each several times, and how long they took.

use serde::Serialize;

use super::director::Director;
use super::evidence::{Evidence, KeyEvidence, Sent};
use super::post::Sending;
use crate::drill::{DrillKey, Event, Scenario};
use crate::error::BoxError;
use crate::protocol::Status;

/// Keys whose copies are sent before the next ones': some copies come while the first one runs, some
/// after it is done.
const BLOCK: usize = 50;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub keys: usize,
    pub copies: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct LoadReport {
    pub keys: usize,
    pub messages: usize,
    /// Calls of the effect, and what its provider did.
    pub calls: usize,
    pub effects: usize,
    /// Calls, and effects, beyond one a key.
    pub double_calls: usize,
    pub double_effects: usize,
    /// From the first message sent to the last.
    pub sent_ms: u64,
    /// From the first message sent to the last job done.
    pub done_ms: u64,
    /// From the first message sent to an empty queue.
    pub drained_ms: u64,
    pub jobs_per_second: f64,
    pub messages_per_second: f64,
    /// From a key's first message to its completion.
    pub p50_ms: u64,
    pub p95_ms: u64,
    pub p99_ms: u64,
    pub longest_ms: u64,
}

impl Load {
    pub fn of(self, director: &Director<'_>) -> Vec<DrillKey> {
        (0..self.keys).map(|n| director.key(Scenario::Load, n)).collect()
    }

    /// Sends all of it.
    pub async fn send(
        self,
        director: &Director<'_>,
        keys: &[DrillKey],
        tell: impl Fn(usize),
    ) -> Result<(), BoxError> {
        for (n, block) in keys.chunks(BLOCK).enumerate() {
            for copy in 0..self.copies {
                let why = if copy == 0 { Sent::First } else { Sent::Copy };
                let sending = |key: &DrillKey| Sending { key: key.clone(), takes_ms: 0, why };
                director.post.send(&block.iter().map(sending).collect::<Vec<_>>()).await?;
            }
            tell(n * BLOCK + block.len());
        }
        Ok(())
    }
}

impl LoadReport {
    /// What a run's evidence shows of it; the queue was seen empty at `drained`.
    pub fn of(evidence: &Evidence, drained: u64) -> Self {
        let keys = &evidence.keys;
        let sent = || keys.iter().flat_map(|key| key.sent.iter().map(|(at, _)| *at));
        let began = sent().min().unwrap_or_default();
        let mut took: Vec<u64> = keys.iter().filter_map(took_ms).collect();
        took.sort_unstable();
        let done = keys.iter().filter_map(done_at).max().unwrap_or(began);
        let calls = |key: &KeyEvidence| {
            key.rows().iter().filter(|row| matches!(row.event, Event::Called { .. })).count()
        };
        let sum = |of: &dyn Fn(&KeyEvidence) -> usize| keys.iter().map(of).sum::<usize>();
        let messages = sent().count();
        let (done_ms, drained_ms) = (done.saturating_sub(began), drained.saturating_sub(began));
        Self {
            keys: keys.len(),
            messages,
            calls: sum(&calls),
            effects: sum(&|key| key.kept.accepted),
            double_calls: sum(&|key| calls(key).saturating_sub(1)),
            double_effects: sum(&|key| key.kept.accepted.saturating_sub(1)),
            sent_ms: sent().max().unwrap_or_default().saturating_sub(began),
            done_ms,
            drained_ms,
            jobs_per_second: rate(took.len(), done_ms),
            messages_per_second: rate(messages, drained_ms),
            p50_ms: percentile(&took, 50),
            p95_ms: percentile(&took, 95),
            p99_ms: percentile(&took, 99),
            longest_ms: took.last().copied().unwrap_or_default(),
        }
    }
}

fn done_at(key: &KeyEvidence) -> Option<u64> {
    let record = key.record.as_ref().filter(|record| record.status == Status::Completed)?;
    Some(record.updated_at.millis())
}

fn took_ms(key: &KeyEvidence) -> Option<u64> {
    let (sent, _) = key.sent.first()?;
    Some(done_at(key)?.saturating_sub(*sent))
}

#[allow(clippy::cast_precision_loss, reason = "of no matter below 2^52")]
fn rate(count: usize, ms: u64) -> f64 {
    let per_second = count as f64 * 1000.0 / ms.max(1) as f64;
    (per_second * 10.0).round() / 10.0
}

/// The smallest value that so many of a hundred are not above; `sorted` is.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=200).collect();
        for (percent, value) in [(50, 100), (95, 190), (99, 198), (100, 200)] {
            assert_eq!(percentile(&values, percent), value, "p{percent}");
        }
        assert_eq!((percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 50)), (7, 7, 0));
        assert_eq!(rate(30, 2_000).to_bits(), 15f64.to_bits());
    }
}
