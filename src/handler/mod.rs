//! Handlers: what a job is called with, and what it answers.

mod fingerprint;
mod job;
mod router;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::util::BoxCloneSyncService;

use crate::context::Context;
use crate::error::{BoxError, HandlerError};
use crate::payload::{NotJson, Payload};
use crate::protocol::Output;

pub use job::Job;
pub(crate) use job::Policy;
pub use router::Router;

/// The largest output kept for replays; a larger one is omitted, and the job completes all the same.
pub const MAX_OUTPUT: usize = 64 * 1024;

/// What a handler is called with; tower layers see this.
#[derive(Debug)]
pub struct Call {
    /// The message's payload.
    pub payload: Payload,
    /// The attempt.
    pub context: Context,
}

/// What a handler answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub(crate) output: Output,
}

impl Reply {
    /// The answer as JSON; one that cannot be written, or is over [`MAX_OUTPUT`], is omitted. By
    /// now the effect has happened, so nothing here may fail.
    pub fn of<R: Serialize>(answer: &R) -> Self {
        let written = catch_unwind(AssertUnwindSafe(|| serde_json::to_string(answer)));
        let output = match written {
            Ok(Ok(json)) if json.len() <= MAX_OUTPUT => Output::Stored(json),
            _ => Output::Omitted,
        };
        Self { output }
    }
}

/// A handler behind its layers.
pub type JobService = BoxCloneSyncService<Call, Reply, BoxError>;

/// An `async fn(payload, Context) -> Result<R, HandlerError>`.
///
/// `payload` is anything that deserialises from the message's body, `R` anything that serialises;
/// take [`Payload`] for the body itself.
pub trait Handler<P, R>: Clone + Send + Sync + 'static {
    /// Runs the job once.
    fn call(
        &self,
        payload: P,
        context: Context,
    ) -> impl Future<Output = Result<R, HandlerError>> + Send;
}

impl<F, Fut, P, R> Handler<P, R> for F
where
    F: Fn(P, Context) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<R, HandlerError>> + Send,
{
    fn call(
        &self,
        payload: P,
        context: Context,
    ) -> impl Future<Output = Result<R, HandlerError>> + Send {
        self(payload, context)
    }
}

/// Something a handler can be given: made from the message's payload.
pub trait FromPayload: Sized + Send {
    /// Reads it.
    fn from_payload(payload: Payload) -> Result<Self, NotJson>;
}

impl<P: DeserializeOwned + Send> FromPayload for P {
    fn from_payload(payload: Payload) -> Result<Self, NotJson> {
        payload.read()
    }
}

impl FromPayload for Payload {
    fn from_payload(payload: Payload) -> Result<Self, NotJson> {
        Ok(payload)
    }
}
