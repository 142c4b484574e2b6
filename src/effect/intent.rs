//! Effects whose intent is on the record before they begin, so that a crash in the middle is known
//! to have been one.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::observed::Call;
use super::{Effect, Probe};
use crate::error::HandlerError;
use crate::protocol::{Begin, Doubt, EffectClass, EffectKey, Said};

const CLASS: EffectClass = EffectClass::Intended;

impl Effect {
    /// For how long after the effect began its request may still take effect: the time `send` itself
    /// takes, the provider's lag, and what clocks may differ by. Until then "not done" is not
    /// believed. A minute by default.
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
        match self.begin(CLASS).await? {
            Begin::Done(result) => self.kept(&result),
            Begin::Open { why, .. } => Err(self.in_doubt(why)),
            Begin::Run { .. } => {
                match self.send(Call::Once, false, Box::pin(async { send().await })).await {
                    Err(error) if error.said() != Said::Nothing => Err(error),
                    Err(error) => Err(HandlerError::unknown(error.message())),
                    done => done,
                }
            }
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
        let (key, first_sent, why) = match self.begin(CLASS).await? {
            Begin::Done(result) => return self.kept(&result),
            Begin::Run { key, .. } => {
                return self
                    .send(Call::Reconciled, false, Box::pin(async { send(key).await }))
                    .await;
            }
            Begin::Open { key, first_sent, why } => (key, first_sent, why),
        };
        let asked = key.clone();
        let asking = Box::pin(async { probe(asked).await });
        if let Some(result) = self.ask(Call::Probe, first_sent, asking).await? {
            return Ok(result);
        }
        if why == Doubt::ResultLost {
            return Err(HandlerError::unknown(format!(
                "effect {:?} is done by its record, and not done by its provider",
                self.name
            )));
        }
        self.context.begin_again(&self.name, CLASS).await?;
        self.send(Call::Reconciled, false, Box::pin(async { send(key).await })).await
    }
}
