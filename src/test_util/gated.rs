//! Store, queue and providers as one invocation sees them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::boundary::Kind;
use super::crossing::{Crossed, Life};
use crate::context::{EffectCall, EffectObserver};
use crate::error::{Error, ErrorKind, HandlerError};
use crate::front::{Delay, Mark, Message, Placed, Queue};
use crate::local::LocalQueue;
use crate::protocol::{ConditionalWrite, Said};
use crate::store::{Commit, Overlay, StagedWrite, Store};

/// The store.
#[derive(Clone)]
pub(super) struct GatedStore {
    pub life: Arc<Life>,
    pub inner: Arc<dyn Store>,
}

impl GatedStore {
    async fn lands(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let before = self.inner.load(&write.id).await?;
        let commit = self.inner.commit(write, staged).await?;
        if commit == Commit::Applied
            && let Some(after) = self.inner.load(&write.id).await?
        {
            let now = self.life.clock.now();
            self.life.witness.committed(write, before.as_ref(), &after, staged.len(), now);
        }
        Ok(commit)
    }

    #[allow(clippy::disallowed_methods, reason = "it is under way, whoever waits for it or not")]
    fn lands_later(&self, write: &ConditionalWrite, staged: &[StagedWrite], wait: Duration) {
        let (store, write) = (self.clone(), write.clone());
        let rows = staged.iter().map(|staged| match staged {
            StagedWrite::Row(row) => Some(StagedWrite::Row(row.clone())),
            StagedWrite::Native { .. } => None,
        });
        // A form of the store's own cannot be kept for later: the request is lost, then, and not sent
        // without it.
        let Some(rows) = rows.collect::<Option<Vec<_>>>() else { return };
        tokio::spawn(async move {
            store.life.clock.sleep_until(store.life.clock.now() + wait).await;
            store.lands(&write, &rows).await
        });
    }
}

#[async_trait]
impl Overlay for GatedStore {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let committing = self.lands(write, staged);
        let later = |wait| self.lands_later(write, staged, wait);
        let error = |kind| Err(Error::new(kind, "commit").with_id(&write.id));
        match self.life.cross(Kind::of(write), Some(&write.id), committing, later).await {
            Crossed::Answered(committed) => committed,
            Crossed::Lost => error(ErrorKind::StoreUnavailable),
            Crossed::Contended => error(ErrorKind::StoreContended),
            Crossed::Refused => error(ErrorKind::StoreRefused),
        }
    }
}

/// The queue, as a front asks it.
pub(super) struct GatedQueue {
    pub life: Arc<Life>,
    pub inner: LocalQueue,
}

#[async_trait]
impl Queue for GatedQueue {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        let placing = self.inner.quarantine(message, mark);
        match self.life.cross(Kind::Quarantine, None, placing, drop).await {
            Crossed::Answered(placed) => placed,
            _ => Err(Error::new(ErrorKind::Queue, "quarantine")),
        }
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        // Best effort: whoever asks learns nothing of it either way.
        let _ = self.life.cross(Kind::Delay, None, self.inner.delay(delays), drop).await;
    }
}

/// The providers.
pub(super) struct GatedEffects(pub Arc<Life>);

#[async_trait]
impl EffectObserver for GatedEffects {
    async fn before(&self, call: &EffectCall) -> Result<(), HandlerError> {
        let kind = if call.is_probe { Kind::Probe } else { Kind::Send };
        self.0.witness.begins(call);
        if self.0.leaves(kind, &call.effect, &call.id).await {
            self.0.witness.calls(call);
            return Ok(());
        }
        Err(HandlerError::retryable("the request was lost"))
    }

    async fn after(&self, call: &EffectCall, came: Result<(), Said>) -> Result<(), HandlerError> {
        self.0.witness.called(call, came);
        if self.0.answered(&call.effect, &call.id).await {
            return Ok(());
        }
        Err(HandlerError::retryable("the answer was lost"))
    }
}
