//! A store with what it lives on: a folder, a process.

use std::sync::Arc;

use async_trait::async_trait;
use onlyonce::error::Error;
use onlyonce::protocol::ConditionalWrite;
use onlyonce::store::{Commit, Overlay, StagedWrite, Store};

/// What `_keeps` is goes with the store.
pub struct Kept<K> {
    pub store: Arc<dyn Store>,
    pub _keeps: K,
}

#[async_trait]
impl<K: Send + Sync + 'static> Overlay for Kept<K> {
    fn under(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.store.commit(write, staged).await
    }
}
