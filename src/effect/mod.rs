//! Side effects that declare what may happen after a crash.

#[cfg(feature = "aws-effects")]
pub(crate) mod aws;
#[cfg(feature = "http")]
pub mod http;
mod intent;
#[cfg(feature = "jobs-file")]
pub(crate) mod row;
#[cfg(feature = "http")]
pub(crate) mod template;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{Begin, Context, Plan};
use crate::error::HandlerError;
use crate::protocol::{EffectKey, Timestamp};

pub use intent::Probe;

/// The largest result of one effect that is kept. A larger one is not, and a later attempt runs
/// the effect again, under the same key.
pub const MAX_RESULT: usize = 16 * 1024;

/// A side effect about to be declared; made by [`Context::effect`].
///
/// Its result is kept on the record, so that a later attempt gets it back instead of running the
/// effect again. It is written no later than before the next effect, or with the attempt's end:
/// one effect a job costs no extra write.
#[derive(Debug)]
#[must_use = "an effect does nothing until its guarantee is declared"]
pub struct Effect {
    context: Context,
    name: String,
    window: Option<Duration>,
    settles_within: Duration,
}

impl Effect {
    pub(crate) fn new(context: Context, name: String) -> Self {
        Self { context, name, window: None, settles_within: Duration::from_secs(60) }
    }

    /// For how long the provider remembers a key. A re-run after that could happen twice: it is
    /// not sent, and ends as unknown.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// **Once at the provider**: after a crash it is sent again under the same key, and the
    /// provider knows it. Pass the key on as the provider's idempotency key, and make the request
    /// from the payload and earlier results alone, so that it is the same each time.
    pub async fn keyed<T, E, F, Fut>(self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        self.run(send).await
    }

    /// **At least once**: after a crash it runs again, in rare cases a second time. For effects
    /// where that is acceptable, as with most mail.
    pub async fn at_least_once<T, E, F, Fut>(mut self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        // It runs again however late: nobody remembers a key.
        self.window = None;
        self.run(|_| send()).await
    }

    async fn run<T, E, F, Fut>(self, send: F) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<HandlerError>,
        F: FnOnce(EffectKey) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let plan = Plan { window: self.window, has_intent: false };
        match self.context.begin(&self.name, plan).await? {
            Begin::Run(key) | Begin::Open { key, .. } => {
                let begun = self.context.now();
                let result = send(key).await.map_err(Into::into)?;
                self.done(begun, result).await
            }
            Begin::Done(result) => self.kept(&result),
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
