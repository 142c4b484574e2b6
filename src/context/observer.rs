//! What a test sees of an attempt's effects, and where it can break them off.

use async_trait::async_trait;

use super::Context;
use crate::error::HandlerError;
use crate::protocol::{EffectKey, Fingerprint, RecordId, Said};

/// What an effect has declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guarantee {
    /// Runs again after a crash.
    AtLeastOnce,
    /// Sent again under one key.
    Keyed,
    /// The provider is asked.
    Reconcile,
    /// Never again by itself.
    AtMostOnce,
}

/// One call of an effect's provider: a request, or a question about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectCall {
    /// The job's name.
    pub job: String,
    /// Of the operation.
    pub id: RecordId,
    /// Of the claim.
    pub token: u64,
    /// The effect's name.
    pub effect: String,
    /// What it has declared.
    pub guarantee: Guarantee,
    /// Whether the provider is only asked.
    pub is_probe: bool,
    /// What its provider knows it by.
    pub key: EffectKey,
    /// Digest of what is sent, where the effect says so.
    pub request: Option<Fingerprint>,
}

/// Is told of each call before and after, and may hold it up or break it off.
#[async_trait]
pub trait EffectObserver: Send + Sync + 'static {
    /// Before the call. After an error it is not made.
    async fn before(&self, call: &EffectCall) -> Result<(), HandlerError>;

    /// After it, and what its answer said if it was an error. After an error that answer is lost.
    async fn after(&self, call: &EffectCall, came: Result<(), Said>) -> Result<(), HandlerError>;
}

impl Context {
    /// Makes a call under the eyes of the worker's observer.
    pub(crate) async fn observed<T>(
        &self,
        name: &str,
        (guarantee, is_probe): (Guarantee, bool),
        request: Option<&Fingerprint>,
        calling: impl Future<Output = Result<T, HandlerError>>,
    ) -> Result<T, HandlerError> {
        let Some(observer) = &self.attempt.about.observer else {
            return calling.await;
        };
        let about = &self.attempt.about;
        let generation = self
            .attempt
            .journal
            .lock()
            .await
            .as_ref()
            .and_then(|journal| journal.held.effects.get(name).map(|effect| effect.generation));
        let call = EffectCall {
            job: about.job.clone(),
            id: about.id.clone(),
            token: about.token.0,
            effect: name.to_owned(),
            guarantee,
            is_probe,
            key: EffectKey::new(&about.id, name, generation.unwrap_or_default()),
            request: request.cloned(),
        };
        observer.before(&call).await?;
        let came = calling.await;
        let said = came.as_ref().map(drop).map_err(HandlerError::said);
        observer.after(&call, said).await?;
        came
    }
}
