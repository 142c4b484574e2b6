//! The store under observation: who claimed, who settled, and who died between.

use std::sync::Arc;

use async_trait::async_trait;

use super::kill::{Boundary, Kill};
use super::ledger::Ledger;
use crate::error::Error;
use crate::protocol::{Change, ConditionalWrite, Field, Status};
use crate::store::{Commit, Overlay, StagedWrite, Store};

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
impl Overlay for WatchedStore {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
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
}
