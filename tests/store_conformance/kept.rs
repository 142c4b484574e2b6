//! A store with what it lives on: a folder, a process.

use std::sync::Arc;

use async_trait::async_trait;
use onlyonce::error::Error;
use onlyonce::protocol::{ConditionalWrite, Record, RecordId, Status};
use onlyonce::store::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};

/// What `_keeps` is goes with the store.
pub struct Kept<S, K> {
    pub store: S,
    pub _keeps: K,
}

#[async_trait]
impl<S: Store, K: Send + Sync + 'static> Store for Kept<S, K> {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.store.load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.store.commit(write, staged).await
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.store.scan(parked, after, limit).await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.store.walk(after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.store.accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        None
    }
}
