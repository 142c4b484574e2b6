//! One job: a name, a handler behind its layers, and what the job may cost.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::fingerprint::Compared;
use super::{Call, FromPayload, Handler, JobService, Reply};
use crate::error::{BoxError, HandlerError};
use crate::payload::{NotJson, Payload};
use crate::protocol::{Retention, RetryPolicy};

/// What a job may cost and how long it is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub retry: RetryPolicy,
    pub retention: Retention,
    pub timeout: Option<Duration>,
    pub is_fused: bool,
    /// Whether it writes rows whatever its payload: nothing for a store that has none.
    pub stages_rows: bool,
}

/// What a jobs file says of a job's effect, for those who look at it from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command looks"))]
pub(crate) struct Declared {
    pub effect: Option<String>,
    pub guarantee: Option<String>,
    /// For how long the provider remembers a key, where it can then not be asked.
    pub key_window: Option<Duration>,
}

/// A named job.
#[derive(Clone)]
pub struct Job {
    pub(crate) name: String,
    pub(crate) policy: Policy,
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command looks"))]
    pub(crate) declared: Declared,
    pub(super) compared: Compared,
    is_raw: bool,
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
            declared: Declared::default(),
            compared: Compared::Whole,
            is_raw: false,
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

    /// **Exactly once, in one write**: nothing is claimed; what the handler stages and the completion
    /// are one transaction, which a copy of the message loses. For jobs whose whole work is what
    /// they [stage](crate::context::Context::stage): copies that come at the same time all run the handler, so
    /// it has no effects, and declaring one fails the job.
    #[must_use]
    pub fn fused(mut self) -> Self {
        self.policy.is_fused = true;
        self
    }

    #[cfg(feature = "jobs-file")]
    pub(crate) fn stages_rows(mut self) -> Self {
        self.policy.stages_rows = true;
        self
    }

    #[cfg(feature = "jobs-file")]
    pub(crate) fn key_window(mut self, window: Option<Duration>) -> Self {
        self.declared.key_window = window;
        self
    }

    /// Takes the body as it is, JSON or not; its fingerprint is over the bytes.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.is_raw = true;
        self
    }

    /// Wraps the handler in a tower layer. The layer runs inside the claim: what it refuses counts
    /// as a failed attempt.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
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
        if self.is_raw { Ok(Payload::raw(body)) } else { Payload::json(body) }
    }

    /// Whether it takes the body as it is.
    #[cfg(feature = "jobs-file")]
    pub(crate) fn is_raw(&self) -> bool {
        self.is_raw
    }

    /// Runs the job once.
    pub(crate) async fn run(self, call: Call) -> Result<Reply, HandlerError> {
        self.service.oneshot(call).await.map_err(HandlerError::from_boxed)
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.name).field("policy", &self.policy).finish()
    }
}
