//! Looking at records.

use super::RecordView;
use crate::error::Error;
use crate::protocol::{EpochSeconds, RecordId, Status};
use crate::runtime::{Clock, SystemClock};
use crate::store::Store;

/// One record, by a consistent read.
pub async fn inspect(store: &dyn Store, id: &RecordId) -> Result<Option<RecordView>, Error> {
    Ok(store.load(id).await?.map(RecordView::from))
}

/// Up to `limit` records of `namespace` in the parked status `parked`, oldest first.
pub async fn list(
    store: &dyn Store,
    namespace: &str,
    parked: Status,
    limit: usize,
) -> Result<Vec<RecordView>, Error> {
    let mut found = Vec::new();
    let mut cursor = None;
    while found.len() < limit {
        let page = store.scan(parked, cursor, 100).await?;
        // What is forgotten waits for nobody, and stays until its TTL takes it.
        let is_kept = |at: EpochSeconds| !at.is_past(SystemClock.now());
        let ours = page.records.into_iter().filter(|record| {
            record.namespace == namespace && record.expires_at.is_none_or(is_kept)
        });
        found.extend(ours.map(RecordView::from).take(limit - found.len()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}
