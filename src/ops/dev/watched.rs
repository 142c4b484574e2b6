//! The store under observation: who claimed, who settled, and who died between.

use std::sync::Arc;

use async_trait::async_trait;

use super::kill::{Boundary, Kill};
use super::ledger::Ledger;
use crate::error::Error;
use crate::protocol::{Change, ConditionalWrite, Field, Record, RecordId, Status};
use crate::store::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};

pub struct WatchedStore {
    inner: Arc<dyn Store>,
    ledger: Arc<Ledger>,
    kill: Kill,
}

impl WatchedStore {
    pub fn new(inner: Arc<dyn Store>, ledger: Arc<Ledger>, kill: Kill) -> Self {
        Self { inner, ledger, kill }
    }
}

/// The status a write leads to, if it changes it.
fn status(write: &ConditionalWrite) -> Option<Status> {
    match &write.change {
        Change::Create(record) => Some(record.status),
        Change::Update(fields) => fields.iter().find_map(|field| match field {
            Field::Status(status) => Some(*status),
            _ => None,
        }),
    }
}

#[async_trait]
impl Store for WatchedStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.inner.load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let id = &write.id;
        let status = status(write);
        match status {
            Some(Status::Claimed) => self.kill.at(Boundary::BeforeClaim, id).await,
            Some(_) => self.kill.at(Boundary::BeforeSettling, id).await,
            None => {}
        }
        let is_claim = status == Some(Status::Claimed);
        if is_claim {
            self.kill.claiming(id, true);
        }
        let commit = self.inner.commit(write, staged).await;
        if is_claim {
            self.kill.claiming(id, false);
        }
        let commit = commit?;
        if commit != Commit::Applied {
            if let Commit::Conflict(Some(record)) = &commit {
                self.ledger.refused(write, record);
            }
            return Ok(commit);
        }
        match status {
            Some(Status::Claimed) => {
                self.ledger.claimed(write);
                self.kill.begun(id);
                self.kill.at(Boundary::AfterClaim, id).await;
            }
            Some(status) => {
                self.ledger.settled(write, status);
                self.kill.settled(id);
                self.kill.at(Boundary::AfterSettling, id).await;
            }
            None => {}
        }
        Ok(commit)
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
