//! Effects whose provider remembers our key.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::observed::Call;
use super::{Effect, Probe};
use crate::error::HandlerError;
use crate::protocol::{Begin, Doubt, EffectClass, EffectKey, Failure, Said};

impl Effect {
    /// For how long the provider remembers a key, counted from when it was first sent. A re-run after
    /// that could happen twice: it is not sent, and ends as unknown, or by asking. It is looked at as
    /// the effect begins: declare less than the provider does, by an attempt's time and what clocks
    /// may differ by.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// **Once at the provider**: after a crash it is sent again under the same key, and the
    /// provider knows it. Pass the key on as the provider's idempotency key, and make the request
    /// from the payload and earlier results alone, so that it is the same each time.
    ///
    /// A new key is made only for a re-run after [`HandlerError::rejected`].
    pub async fn keyed<T, E, F, Fut>(self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        match self.begin(self.class()).await? {
            Begin::Done(result) => self.kept(&result),
            Begin::Open { why, .. } => Err(self.in_doubt(why)),
            Begin::Run { key, sent_since } => {
                self.send_keyed(sent_since.is_some(), Box::pin(async { send(key).await })).await
            }
        }
    }

    /// **Once at the provider**, and where its key cannot tell, by asking: past the window, or when
    /// `send` ends as [`HandlerError::unknown`], `probe` asks the provider by our key what became of
    /// the request. Done is kept; what was not done is sent again once the provider no longer knows
    /// the key, and is unknown before that; what the provider cannot say is unknown.
    pub async fn keyed_or_ask<T, E, P, PFut, F, Fut>(
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
        match self.begin(self.class()).await? {
            Begin::Done(result) => self.kept(&result),
            Begin::Run { key, sent_since } => {
                let first_sent = sent_since.unwrap_or(self.context.now());
                let sent = key.clone();
                let sending = Box::pin(async { send(sent).await });
                match self.send_keyed(sent_since.is_some(), sending).await {
                    Err(error) if *error.failure() == Failure::Unknown => {
                        let found = self
                            .ask(Call::KeyedProbe, first_sent, Box::pin(async { probe(key).await }))
                            .await?;
                        // The key is spent, and another one is not for a program to choose.
                        found.ok_or(error)
                    }
                    ended => ended,
                }
            }
            Begin::Open { key, first_sent, why } => {
                let asked = key.clone();
                let asking = Box::pin(async { probe(asked).await });
                if let Some(result) = self.ask(Call::KeyedProbe, first_sent, asking).await? {
                    return Ok(result);
                }
                if why == Doubt::OtherRequest {
                    return Err(self.in_doubt(why));
                }
                self.context.begin_again(&self.name, self.class()).await?;
                self.send_keyed(false, Box::pin(async { send(key).await })).await
            }
        }
    }

    fn class(&self) -> EffectClass {
        EffectClass::Keyed { window: self.window }
    }

    async fn send_keyed<T, E>(
        &self,
        was_sent: bool,
        sending: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError>
    where
        T: Serialize,
        E: Into<HandlerError>,
    {
        match self.send(Call::Keyed, was_sent, sending).await {
            // What was sent under this key before, nobody can say by it.
            Err(error) if error.said() == Said::Mismatch && was_sent => {
                Err(HandlerError::unknown(format!(
                    "effect {:?} was sent before, and its provider may know the key with another \
                     request: {}",
                    self.name,
                    error.message()
                )))
            }
            ended => ended,
        }
    }
}
