//! Jobs: a name, a handler, and what the job may cost.

mod fingerprint;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

use self::fingerprint::Compared;
use crate::context::Context;
use crate::error::{BoxError, HandlerError};
use crate::payload::{NotJson, Payload};
use crate::protocol::{Output, Retention, RetryPolicy};
use crate::rules::MessageRules;

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

/// What a job may cost and how long it is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub retry: RetryPolicy,
    pub retention: Retention,
    pub timeout: Option<Duration>,
    pub is_raw: bool,
}

/// A named job.
#[derive(Clone)]
pub struct Job {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    compared: Compared,
    service: JobService,
}

impl Job {
    /// The job `name`, run by `handler`, with five attempts and 45 days of memory.
    pub fn new<H, P, R>(name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<P, R>,
        P: FromPayload + 'static,
        R: Serialize + Send + 'static,
    {
        Self::from_calls(name, move |call: Call| {
            let handler = handler.clone();
            async move {
                // The same body fails the same way each time.
                let payload = P::from_payload(call.payload).map_err(|error| {
                    HandlerError::terminal(format!("the payload does not fit this job: {error}"))
                })?;
                let answer = handler.call(payload, call.context).await?;
                Ok(Reply::of(&answer))
            }
        })
    }

    /// The job `name`, run by a function from [`Call`] to [`Reply`].
    pub(crate) fn from_calls<F, Fut>(name: impl Into<String>, handle: F) -> Self
    where
        F: Fn(Call) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HandlerError>> + Send + 'static,
    {
        let service = service_fn(move |call: Call| {
            let handled = handle(call);
            async move { handled.await.map_err(HandlerError::into_boxed) }
        });
        Self {
            name: name.into(),
            policy: Policy::default(),
            compared: Compared::Whole,
            service: BoxCloneSyncService::new(service),
        }
    }

    /// How often, and how far apart.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.policy.retry = retry;
        self
    }

    /// How long one attempt may take. The handler is stopped a little before, by 2 s or a tenth,
    /// so that the attempt can be settled. Default: what the invocation has left.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = Some(timeout);
        self
    }

    /// How long a settled record is remembered: longer than any late redelivery.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.policy.retention = retention;
        self
    }

    /// Takes the body as it is, JSON or not; its fingerprint is over the bytes.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.policy.is_raw = true;
        self
    }

    /// Wraps the handler in a tower layer. The layer runs inside the claim: what it refuses counts
    /// as a failed attempt.
    #[must_use]
    pub fn layer<L>(mut self, layer: &L) -> Self
    where
        L: Layer<JobService>,
        L::Service: Service<Call, Response = Reply> + Clone + Send + Sync + 'static,
        <L::Service as Service<Call>>::Error: Into<BoxError>,
        <L::Service as Service<Call>>::Future: Send + 'static,
    {
        let layered = layer.layer(self.service).map_err(Into::into);
        self.service = BoxCloneSyncService::new(layered);
        self
    }

    /// A message's body as this job takes it.
    pub(crate) fn payload(&self, body: &str) -> Result<Payload, NotJson> {
        if self.policy.is_raw { Ok(Payload::raw(body)) } else { Payload::json(body) }
    }

    /// Runs the job once.
    pub(crate) async fn run(self, call: Call) -> Result<Reply, HandlerError> {
        self.service.oneshot(call).await.map_err(HandlerError::from_boxed)
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("name", &self.name).field("policy", &self.policy).finish()
    }
}

/// Jobs by name.
#[derive(Clone, Debug, Default)]
pub struct Router {
    jobs: HashMap<String, Job>,
    twice: Option<String>,
    messages: MessageRules,
}

impl Router {
    /// No jobs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the job `name` with the default policy.
    #[must_use]
    pub fn job<H, P, R>(self, name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<P, R>,
        P: FromPayload + 'static,
        R: Serialize + Send + 'static,
    {
        self.with(Job::new(name, handler))
    }

    /// Adds a job with its own policy.
    #[must_use]
    pub fn with(mut self, job: Job) -> Self {
        let name = job.name.clone();
        if self.jobs.insert(name.clone(), job).is_some() {
            self.twice = Some(name);
        }
        self
    }

    /// How messages name their job and key; by default with attributes.
    #[must_use]
    pub fn messages(mut self, rules: MessageRules) -> Self {
        self.messages = rules;
        self
    }

    pub(crate) fn message_rules(&self) -> &MessageRules {
        &self.messages
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Job> {
        self.jobs.get(name)
    }

    /// A name that was added twice: which of the two should run is anybody's guess.
    pub(crate) fn name_twice(&self) -> Option<&str> {
        self.twice.as_deref()
    }

    pub(crate) fn map(mut self, change: impl Fn(Job) -> Job) -> Self {
        self.jobs = self.jobs.into_iter().map(|(name, job)| (name, change(job))).collect();
        self
    }
}
