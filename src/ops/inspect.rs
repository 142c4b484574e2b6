//! Looking at records.

use super::RecordView;
use crate::error::Error;
use crate::protocol::{RecordId, Status};
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
        let ours = page.records.into_iter().filter(|record| record.namespace == namespace);
        found.extend(ours.map(RecordView::from).take(limit - found.len()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(found)
}
