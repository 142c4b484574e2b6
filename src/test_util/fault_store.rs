//! A store that fails on command.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::error::{Error, ErrorKind};
use crate::protocol::ConditionalWrite;
use crate::store::{Commit, Overlay, StagedWrite, Store};

/// What goes wrong with one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It does not land, and the store does not say so.
    LoseRequest,
    /// It lands, and the store does not say so.
    LoseReply,
    /// It does not land: another transaction is in the way.
    Contend,
    /// It does not land, and the store refuses it for good.
    Refuse,
    /// It does not land, and the store never answers.
    Hang,
    /// It lands, and the store never answers.
    HangAfter,
}

/// A store whose commits go wrong as told, in order; after that, well.
pub struct FaultStore {
    inner: Arc<dyn Store>,
    script: Mutex<VecDeque<Fault>>,
    commits: AtomicUsize,
}

impl FaultStore {
    /// `inner`, with `script` for its next commits.
    pub fn new(inner: Arc<dyn Store>, script: impl IntoIterator<Item = Fault>) -> Self {
        Self {
            inner,
            script: Mutex::new(script.into_iter().collect()),
            commits: AtomicUsize::new(0),
        }
    }

    /// How many commits were asked for.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }

    fn next(&self) -> Fault {
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        script.pop_front().unwrap_or(Fault::None)
    }
}

#[async_trait]
impl Overlay for FaultStore {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        let lost = |detail: &str| {
            Err(Error::new(ErrorKind::StoreUnavailable, "commit").with_detail(detail))
        };
        match self.next() {
            Fault::None => self.inner.commit(write, staged).await,
            Fault::LoseRequest => lost("the request was lost"),
            Fault::LoseReply => {
                self.inner.commit(write, staged).await?;
                lost("the reply was lost")
            }
            Fault::Contend => Err(Error::new(ErrorKind::StoreContended, "commit")),
            Fault::Refuse => Err(Error::new(ErrorKind::StoreRefused, "commit")),
            Fault::Hang => std::future::pending().await,
            Fault::HangAfter => {
                self.inner.commit(write, staged).await?;
                std::future::pending().await
            }
        }
    }
}

impl std::fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultStore").field("script", &self.script).finish_non_exhaustive()
    }
}
