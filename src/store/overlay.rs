//! What a store over another has to say for itself.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::Error;
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};

/// A store over another, which has its say at each commit; for all else it is the one under it.
///
/// It is a [`Store`], and so has to give a store's guarantee: to answer `Ok` only for what is certain.
#[async_trait]
pub trait Overlay: Send + Sync + 'static {
    /// The store under it.
    fn under(&self) -> &Arc<dyn Store>;

    /// Its [`Store::commit`].
    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error>;
}

#[async_trait]
impl<O: Overlay> Store for O {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.under().load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.commit_over(write, staged).await
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.under().scan(parked, after, limit).await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.under().walk(after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.under().accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.under().capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        self.under().clone().outbox()
    }
}
