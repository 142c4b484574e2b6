//! What the stream has missed: a look at the whole outbox from time to time.

use std::time::Duration;

use serde::Serialize;
use tracing::info;

use super::Relay;
use crate::error::Error;
use crate::protocol::Timestamp;
use crate::runtime::before;
use crate::service::Deadline;
use crate::store::Take;

/// For so long an entry is left to the stream.
const STREAM: Duration = Duration::from_secs(120);
/// Entries of one look.
const PAGE: usize = 100;

/// What a sweep has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Entries that were sent on.
    pub sent: usize,
    /// Entries that are still to go.
    pub left: usize,
    /// How old the oldest of all is, in seconds.
    pub oldest_s: u64,
}

impl Relay {
    /// Sends on what has waited for longer than two minutes. `hard` is when the platform ends the
    /// invocation.
    pub async fn sweep(&self, hard: Timestamp) -> Result<Swept, Error> {
        let clock = self.worker.clock();
        let begun = clock.now();
        let deadline = Deadline::new(begun, hard);
        let mut swept = Swept::default();
        let mut after = None;
        loop {
            let now = clock.now();
            let take = Take {
                now,
                made_before: begun - STREAM,
                until: hard,
                limit: PAGE,
                after: after.take(),
            };
            let Some(taken) = before(clock, deadline.stop, self.outbox.take(take)).await else {
                break;
            };
            let taken = taken?;
            let oldest = taken.entries.iter().map(|entry| now.since(entry.created_at)).max();
            swept.oldest_s = swept.oldest_s.max(oldest.unwrap_or_default().as_secs());
            let left = self.send_on(&taken.entries, deadline).await.len();
            swept.left += left;
            swept.sent += taken.entries.len() - left;
            after = taken.next;
            if after.is_none() || clock.now() >= deadline.stop {
                break;
            }
        }
        let Swept { sent, left, oldest_s } = swept;
        info!(sent, left, oldest_s, "outbox swept");
        Ok(swept)
    }
}
