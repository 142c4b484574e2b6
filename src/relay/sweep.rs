//! A look at the whole outbox: for what its stream has missed, and where there is no stream.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use tracing::info;

use super::Relay;
use crate::error::{Error, ErrorKind};
use crate::protocol::Timestamp;
use crate::runtime::before;
use crate::service::Deadline;
use crate::store::Take;

/// For so long an entry is left to the stream.
const STREAM: Duration = Duration::from_secs(120);
/// Entries of one look.
const PAGE: usize = 100;
/// For so long what was taken is nobody else's: as long as a relay needs that lives, since for as long
/// it waits after a relay has died. Who takes it earlier finds it claimed.
const HOLD: Duration = Duration::from_secs(10);

/// What a look at the outbox came to.
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
    /// Sends on what waits now. `hard` is when the time for it is over.
    pub async fn once(&self, hard: Timestamp) -> Result<Swept, Error> {
        // What was made in this very millisecond, too.
        self.look(self.worker.clock().now() + Duration::from_millis(1), hard).await
    }

    /// Sends on what has waited for longer than two minutes: what the stream has missed. `hard` is
    /// when the platform ends the invocation.
    pub async fn sweep(&self, hard: Timestamp) -> Result<Swept, Error> {
        let swept = self.look(self.worker.clock().now() - STREAM, hard).await?;
        let Swept { sent, left, oldest_s } = swept;
        info!(sent, left, oldest_s, "outbox swept");
        Ok(swept)
    }

    async fn look(&self, made_before: Timestamp, hard: Timestamp) -> Result<Swept, Error> {
        let clock = self.worker.clock();
        let deadline = Deadline::new(clock.now(), hard);
        let mut swept = Swept::default();
        let mut after = None;
        // Order keys with an entry that is still to go: what is behind it may be on the next page.
        let mut held_up: HashSet<String> = HashSet::new();
        loop {
            let now = clock.now();
            let until = hard.min(now + HOLD);
            let take = Take { now, made_before, until, limit: PAGE, after };
            let taken = before(clock, deadline.stop, self.outbox.take(take)).await;
            let taken = taken.ok_or_else(|| {
                Error::new(ErrorKind::StoreUnavailable, "read the outbox")
                    .with_detail("no answer in time")
            })??;
            let oldest = taken.entries.iter().map(|entry| now.since(entry.created_at)).max();
            swept.oldest_s = swept.oldest_s.max(oldest.unwrap_or_default().as_secs());
            let (behind, entries): (Vec<_>, Vec<_>) =
                taken.entries.into_iter().partition(|entry| held_up.contains(&entry.order_key));
            let left = self.send_on(&entries, deadline).await;
            swept.left += behind.len() + left.len();
            swept.sent += entries.len() - left.len();
            let left = left.into_keys().filter_map(|at| entries.get(at));
            held_up.extend(left.map(|entry| entry.order_key.clone()));
            after = taken.next;
            if after.is_none() || clock.now() >= deadline.stop {
                return Ok(swept);
            }
        }
    }
}
