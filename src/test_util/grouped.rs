//! A store whose commits gather as those of DynamoDB do, over any other.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind};
use crate::protocol::ConditionalWrite;
use crate::store::{Commit, Gather, Overlay, Requests, StagedWrite, Store, Told};

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
impl Overlay for GroupedStore {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
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
}
