//! What the director sees of a run while it goes on: the records, and how many messages there are.

use std::time::Duration;

use tokio::sync::watch;

use super::post::Post;
use crate::drill::{DrillKey, JOB, NAMESPACE};
use crate::error::{BoxError, Error};
use crate::protocol::{IdempotencyKey, Quarantine, Record, RecordId, Status, Timestamp};
use crate::runtime::{Clock, SystemClock, before};
use crate::store::Store;

/// Between two looks.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// The messages of a queue, counted again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    pub left: usize,
    /// Since when there has been none.
    pub empty_since: Option<Timestamp>,
}

/// A run's eyes.
pub(super) struct Sight<'a> {
    pub store: &'a dyn Store,
    pub count: watch::Receiver<Count>,
    /// When patience ends.
    pub until: Timestamp,
    /// How long a queue must have been empty until nothing is expected of it: its counts lag.
    pub quiet: Duration,
}

/// Counts until it is dropped.
pub(super) async fn counting(post: &Post, say: watch::Sender<Count>) {
    loop {
        // One that fails says nothing: the last one stands.
        if let Ok(left) = post.left().await {
            let empty_since = match (left, say.borrow().empty_since) {
                (0, None) => Some(SystemClock.now()),
                (0, since) => since,
                _ => None,
            };
            say.send_replace(Count { left, empty_since });
        }
        SystemClock.sleep_until(SystemClock.now() + LOOKS_EVERY * 2).await;
    }
}

/// The record's id of a key.
pub(super) fn id(key: &DrillKey) -> Result<RecordId, BoxError> {
    Ok(RecordId::new(NAMESPACE, JOB, &IdempotencyKey::new(key.to_string())?))
}

impl Sight<'_> {
    /// Waits until a record satisfies `is`, and answers it; `None` if it will not: the queue has been
    /// empty for a while, or patience is over.
    pub async fn until(
        &self,
        key: &DrillKey,
        is: impl Fn(&Record) -> bool,
    ) -> Result<Option<Record>, BoxError> {
        let id = id(key)?;
        let began = SystemClock.now();
        while SystemClock.now() < self.until {
            let found = match self.store.load(&id).await {
                Err(error) if error.is_retryable() => None,
                found => found?,
            };
            if let Some(record) = found
                && is(&record)
            {
                return Ok(Some(record));
            }
            let since = self.count.borrow().empty_since.map(|since| since.max(began));
            if since.is_some_and(|since| SystemClock.now() >= since + self.quiet) {
                return Ok(None);
            }
            SystemClock.sleep_until(SystemClock.now() + LOOKS_EVERY).await;
        }
        Ok(None)
    }

    /// Waits for a key's end.
    pub async fn end(&self, key: &DrillKey) -> Result<Option<Record>, BoxError> {
        self.until(key, has_ended).await
    }

    /// Waits until the queue is empty, and answers how many messages are left.
    pub async fn drained(&self) -> Result<usize, Error> {
        let mut count = self.count.clone();
        let is_over = |count: &Count| {
            count.empty_since.is_some_and(|since| SystemClock.now() >= since + self.quiet / 3)
        };
        let _ = before(&SystemClock, self.until, count.wait_for(is_over)).await;
        Ok(self.count.borrow().left)
    }
}

/// Whether nothing more is expected of a record.
fn has_ended(record: &Record) -> bool {
    match record.status {
        Status::Completed => true,
        Status::Failed | Status::Unknown => record.quarantine != Some(Quarantine::Pending),
        Status::Claimed | Status::Released => false,
    }
}
