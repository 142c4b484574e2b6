//! Effects whose intent is on the record before they begin, so that a crash in the middle is known
//! to have been one.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Effect;
use crate::context::{Begin, Plan};
use crate::error::HandlerError;
use crate::protocol::EffectKey;

/// What a provider says of a request that may have reached it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe<T> {
    /// It was done; the result.
    Done(T),
    /// It was not, and it is not under way.
    NotDone,
    /// The provider cannot say.
    Unknown,
}

const PLAN: Plan = Plan { window: None, has_intent: true };

impl Effect {
    /// For how long after it was sent a request may still take effect: the provider's lag. Until
    /// then "not done" is not believed. A minute by default.
    pub fn settles_within(mut self, lag: Duration) -> Self {
        self.settles_within = lag;
        self
    }

    /// **At most once**: never again by itself. A crash, a stop or an error in the middle ends as
    /// unknown, parked for a person, unless the error is [`HandlerError::rejected`]: nothing
    /// happened, for certain. Costs one write before.
    pub async fn at_most_once<T, E, F, Fut>(self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        match self.context.begin(&self.name, PLAN).await? {
            Begin::Done(result) => self.kept(&result),
            Begin::Open { .. } => Err(HandlerError::unknown(format!(
                "effect {:?} may have run in an earlier attempt, and runs at most once",
                self.name
            ))),
            Begin::Run(_) => match self.send(send()).await {
                Err(error) if error.is_rejection() => Err(error),
                Err(error) => Err(HandlerError::unknown(error.message())),
                done => done,
            },
        }
    }

    /// **Once, by asking**: after a crash the provider is asked by our key what became of the
    /// request. Done is kept, not done is sent again, and what the provider cannot say ends as
    /// unknown. Costs one write before. Pass the key on as a reference that `probe` can find.
    pub async fn reconcile<T, E, P, PFut, F, Fut>(
        self,
        probe: P,
        send: F,
    ) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        P: FnOnce(EffectKey) -> PFut,
        PFut: Future<Output = Result<Probe<T>, E>>,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let (key, first_sent) = match self.context.begin(&self.name, PLAN).await? {
            Begin::Done(result) => return self.kept(&result),
            Begin::Run(key) => return self.send(send(key)).await,
            Begin::Open { key, first_sent } => (key, first_sent),
        };
        let asked = self.context.now();
        match probe(key.clone()).await.map_err(Into::into)? {
            Probe::Done(result) => self.done(first_sent, result).await,
            Probe::NotDone => {
                // It may have been on its way when the provider was asked.
                let settled = first_sent + self.settles_within;
                if asked < settled {
                    let wait = settled.remaining(asked);
                    return Err(HandlerError::retry_after(
                        wait,
                        "an earlier request may still be under way",
                    ));
                }
                self.context.intend_again(&self.name).await?;
                self.send(send(key)).await
            }
            Probe::Unknown => Err(HandlerError::unknown(format!(
                "the provider cannot say whether effect {:?} happened",
                self.name
            ))),
        }
    }

    /// Sends, and closes the intent if the outcome is certain.
    async fn send<T, E>(
        &self,
        sending: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError>
    where
        T: Serialize,
        E: Into<HandlerError>,
    {
        let begun = self.context.now();
        match sending.await.map_err(Into::into) {
            Ok(result) => self.done(begun, result).await,
            Err(error) => {
                if error.is_rejection() {
                    self.context.rejected(&self.name).await?;
                }
                Err(error)
            }
        }
    }
}
