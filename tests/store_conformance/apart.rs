//! A real store under virtual time: whoever asks it holds the thread until it has answered, so that
//! time does not leap meanwhile, and its own limits run by the machine's clock.

use std::sync::Arc;

use async_trait::async_trait;
use onlyonce::error::Error;
use onlyonce::protocol::{ConditionalWrite, Record, RecordId, Status};
use onlyonce::store::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use tokio::runtime::Runtime;

/// With a runtime of its own.
pub struct Apart {
    store: Option<Arc<dyn Store>>,
    runtime: Runtime,
}

impl Apart {
    pub fn new(making: impl Future<Output = Arc<dyn Store>>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        Self { store: Some(runtime.block_on(making)), runtime }
    }

    /// From a thread that is in no runtime.
    pub fn wait<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        std::thread::scope(|scope| scope.spawn(|| self.runtime.block_on(work)).join().unwrap())
    }

    fn store(&self) -> &dyn Store {
        self.store.as_deref().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Its tasks are this runtime's.
        let _inside = self.runtime.enter();
        self.store = None;
    }
}

#[async_trait]
impl Store for Apart {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.wait(self.store().load(id))
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.wait(self.store().commit(write, staged))
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.wait(self.store().scan(parked, after, limit))
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.wait(self.store().walk(after, limit))
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.store().accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        None
    }
}
