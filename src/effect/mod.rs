//! Side effects that declare what may happen after a crash.

#[cfg(feature = "aws-effects")]
pub(crate) mod aws;
#[cfg(feature = "email")]
pub(crate) mod email;
#[cfg(feature = "http")]
pub mod http;
mod intent;
mod keyed;
mod observed;
#[cfg(feature = "http")]
pub(crate) mod rehearsal;
#[cfg(feature = "jobs-file")]
pub(crate) mod row;
#[cfg(feature = "http")]
pub(crate) mod template;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::observed::Call;
use crate::context::Context;
use crate::error::HandlerError;
use crate::payload::Payload;
use crate::protocol::{Begin, Doubt, EffectClass, Fingerprint, Timestamp};

/// The largest result of one effect that is kept. A larger one is not: see
/// [`Effect`] for what a later attempt makes of that.
pub const MAX_RESULT: usize = 16 * 1024;

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

/// A side effect about to be declared; made by [`Context::effect`].
///
/// Its result is kept on the record, so that a later attempt gets it back instead of running the
/// effect again. It is written no later than before the next effect, or with the attempt's end:
/// one effect a job costs no extra write. Where the result is over [`MAX_RESULT`], a later attempt
/// sends a keyed effect again under its key, runs an at-least-once effect again, asks a provider
/// that can be asked, and fails for good otherwise.
#[derive(Debug)]
#[must_use = "an effect does nothing until its guarantee is declared"]
pub struct Effect {
    context: Context,
    name: String,
    request: Option<Fingerprint>,
    window: Option<Duration>,
    settles_within: Duration,
}

impl Effect {
    pub(crate) fn new(context: Context, name: String) -> Self {
        let settles_within = Duration::from_secs(60);
        Self { context, name, request: None, window: None, settles_within }
    }

    /// What is about to be sent. Its digest is kept where an attempt ends without a certain answer,
    /// so that another request never goes out under the same key: that ends as unknown.
    pub fn request(mut self, request: &impl Serialize) -> Self {
        let written = catch_unwind(AssertUnwindSafe(|| serde_json::to_string(request)));
        let payload = written.ok().and_then(Result::ok).and_then(|json| Payload::json(&json).ok());
        self.request = payload.map(|payload| payload.fingerprint());
        self
    }

    /// The same for bytes.
    #[cfg(feature = "http")]
    pub(crate) fn request_bytes(mut self, request: &[u8]) -> Self {
        self.request = Some(Fingerprint::of(request));
        self
    }

    /// **At least once**: after a crash it runs again, in rare cases a second time. For effects
    /// where that is acceptable, as with most mail.
    pub async fn at_least_once<T, E, F, Fut>(self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        match self.begin(EffectClass::Repeated).await? {
            Begin::Done(result) => self.kept(&result),
            _ => {
                let begun = self.context.now();
                let result =
                    self.observed(Call::Repeated, Box::pin(async { send().await })).await?;
                self.done(begun, result).await
            }
        }
    }

    async fn begin(&self, class: EffectClass) -> Result<Begin, HandlerError> {
        self.context.begin(&self.name, class, self.request.as_ref()).await
    }

    /// Sends, and remembers what came of it.
    async fn send<T, E>(
        &self,
        call: Call,
        was_sent: bool,
        sending: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError>
    where
        T: Serialize,
        E: Into<HandlerError>,
    {
        let begun = self.context.now();
        match self.observed(call, sending).await {
            Ok(result) => self.done(begun, result).await,
            Err(error) => {
                self.context.failed(&self.name, &error, was_sent).await?;
                Err(error)
            }
        }
    }

    /// Asks the provider what became of a request that was sent at `first_sent` or later. `None`: it
    /// was not done, for certain.
    async fn ask<T, E>(
        &self,
        call: Call,
        first_sent: Timestamp,
        asking: impl Future<Output = Result<Probe<T>, E>>,
    ) -> Result<Option<T>, HandlerError>
    where
        T: Serialize,
        E: Into<HandlerError>,
    {
        let asked = self.context.now();
        match self.observed(call, asking).await? {
            Probe::Done(result) => self.done(first_sent, result).await.map(Some),
            Probe::NotDone => {
                // It may have been on its way when the provider was asked.
                // The clock that says when it was sent may be behind this one; and that instant is
                // the intent's, which may have taken a while to be written.
                let margin = self.context.skew() + self.context.intent_takes();
                let settled = first_sent + self.settles_within + margin;
                if asked < settled {
                    let wait = settled.remaining(asked);
                    return Err(HandlerError::retry_after(
                        wait,
                        "an earlier request may still be under way",
                    ));
                }
                Ok(None)
            }
            Probe::Unknown => Err(HandlerError::unknown(format!(
                "the provider cannot say whether effect {:?} happened",
                self.name
            ))),
        }
    }

    /// Why the effect is not run.
    fn in_doubt(&self, why: Doubt) -> HandlerError {
        let name = &self.name;
        match why {
            Doubt::Intent => HandlerError::unknown(format!(
                "effect {name:?} may have run in an earlier attempt, and does not run again by \
                 itself"
            )),
            Doubt::ResultLost => HandlerError::terminal(format!(
                "effect {name:?} is done and does not run again, but its result could not be kept: \
                 answer less than 16 KB"
            )),
            Doubt::WindowOver => HandlerError::unknown(format!(
                "effect {name:?} may have been sent before, and the provider's key window is over: \
                 look it up at the provider"
            )),
            Doubt::OtherRequest => HandlerError::unknown(format!(
                "effect {name:?} was sent with another request under this key: make it from the \
                 payload and earlier results alone, and look up at the provider what it did"
            )),
        }
    }

    /// The result an earlier attempt has kept.
    fn kept<T: DeserializeOwned>(&self, result: &str) -> Result<T, HandlerError> {
        serde_json::from_str(result).map_err(|error| {
            HandlerError::terminal(format!(
                "the kept result of effect {:?} no longer fits its type (line {}, column {})",
                self.name,
                error.line(),
                error.column()
            ))
        })
    }

    /// Keeps a result. The effect has happened: one that cannot be written must not fail it.
    async fn done<T: Serialize>(&self, begun: Timestamp, result: T) -> Result<T, HandlerError> {
        let written = catch_unwind(AssertUnwindSafe(|| serde_json::to_string(&result)));
        let kept = written.ok().and_then(Result::ok).filter(|json| json.len() <= MAX_RESULT);
        self.context.done(&self.name, begun, kept).await?;
        Ok(result)
    }
}

#[cfg(all(any(test, fuzzing), feature = "jobs-file"))]
#[path = "fuzz_tests.rs"]
pub(crate) mod fuzz;
