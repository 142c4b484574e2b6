//! A store whose commits gather as those of DynamoDB do, over any other.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};
use crate::store::{
    Capabilities, Commit, Cursor, Gather, Outbox, Page, Requests, StagedWrite, Store, Told, Walk,
};

/// Up to 25 commits in a request, each with its own outcome; one that is alone, or stages anything,
/// is a request of its own. One record is in no request twice.
pub struct GroupedStore {
    inner: Arc<dyn Store>,
    gather: Gather<Each>,
}

impl GroupedStore {
    /// Over `inner`, with at most `at_once` requests under way.
    pub fn new(inner: Arc<dyn Store>, at_once: usize) -> Self {
        let gather = Gather::new(Each(inner.clone()), 25, at_once);
        Self { inner, gather }
    }
}

struct Each(Arc<dyn Store>);

impl Requests for Each {
    type Asked = ConditionalWrite;
    type Answer = Result<Commit, Error>;

    async fn send(&self, writes: Vec<ConditionalWrite>) -> Vec<Result<Commit, Error>> {
        let mut said = Vec::with_capacity(writes.len());
        for write in &writes {
            said.push(self.0.commit(write, &[]).await);
        }
        said
    }
}

#[async_trait]
impl Store for GroupedStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.inner.load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        if !staged.is_empty() {
            return self.inner.commit(write, staged).await;
        }
        match self.gather.ask(&write.id, write.clone()).await {
            Told::Together(said) => said,
            Told::Alone(_turn) => self.inner.commit(write, staged).await,
            Told::Lost => Err(Error::new(ErrorKind::StoreUnavailable, "commit")
                .with_id(&write.id)
                .with_detail("its request broke off")),
        }
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.inner.scan(parked, after, limit).await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.inner.walk(after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.inner.accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        self.inner.clone().outbox()
    }
}
