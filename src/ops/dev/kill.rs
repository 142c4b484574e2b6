//! Killing invocations at the places where a crash hurts.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tokio::sync::Notify;
use tower::Service;
use tower::layer::{LayerFn, layer_fn};

use crate::error::BoxError;
use crate::handler::{Call, JobService, Reply};
use crate::local::FastClock;
use crate::protocol::RecordId;
use crate::runtime::{Clock, before};

/// Between which two steps an invocation dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    BeforeClaim,
    AfterClaim,
    BeforeEffect,
    DuringEffect,
    BeforeSettling,
    AfterSettling,
}

impl Boundary {
    /// Drawn from. The places around the effect twice: a duplicate never gets that far.
    const DRAWN: [Self; 9] = [
        Self::BeforeClaim,
        Self::AfterClaim,
        Self::BeforeEffect,
        Self::DuringEffect,
        Self::DuringEffect,
        Self::DuringEffect,
        Self::BeforeSettling,
        Self::BeforeSettling,
        Self::AfterSettling,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BeforeClaim => "before the claim was written",
            Self::AfterClaim => "after the claim was written",
            Self::BeforeEffect => "before the effect",
            Self::DuringEffect => "in the middle of the effect",
            Self::BeforeSettling => "after the effect, before it was recorded",
            Self::AfterSettling => "after the completion, before the acknowledgement",
        }
    }
}

/// Decides for each invocation whether and where it dies.
pub struct Kills {
    chance: f64,
    random: Mutex<fastrand::Rng>,
    is_first: AtomicBool,
}

impl Kills {
    pub fn new(chance: f64, seed: u64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { chance, random, is_first: AtomicBool::new(true) }
    }

    /// The first is killed whatever the chance, unless there is none: a run that was to show kills
    /// shows one.
    pub fn next(&self) -> Kill {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = self.is_first.swap(false, Ordering::Relaxed);
        let is_killed = (is_first && self.chance > 0.0) || random.f64() < self.chance;
        let boundary = random.choice(Boundary::DRAWN).filter(|_| is_killed);
        let into_effect = Duration::from_millis(random.u64(0..400));
        Kill(Arc::new(Inner {
            boundary,
            into_effect,
            fired: Notify::new(),
            at: Mutex::default(),
            begun: Mutex::default(),
            claiming: Mutex::default(),
        }))
    }
}

/// One invocation's fate.
#[derive(Clone)]
pub struct Kill(Arc<Inner>);

struct Inner {
    boundary: Option<Boundary>,
    into_effect: Duration,
    fired: Notify,
    /// Whose step it was.
    at: Mutex<Option<RecordId>>,
    /// The records of attempts that are begun and not settled.
    begun: Mutex<BTreeSet<RecordId>>,
    /// Those whose claim is being written.
    claiming: Mutex<BTreeSet<RecordId>>,
}

impl Kill {
    /// Passes `boundary`, or dies there: then nothing of the invocation goes on.
    pub async fn at(&self, boundary: Boundary, id: &RecordId) {
        if self.0.boundary == Some(boundary) {
            *self.0.at.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
            self.0.fired.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Its claim is written, or not; nobody has been told yet.
    pub fn claiming(&self, id: &RecordId, is_under_way: bool) {
        let mut claiming = self.0.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        if is_under_way {
            claiming.insert(id.clone());
        } else {
            claiming.remove(id);
        }
    }

    /// Whose claim may or may not have landed when the invocation died.
    pub fn unsure(&self) -> BTreeSet<RecordId> {
        self.0.claiming.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn begun(&self, id: &RecordId) {
        self.ids().insert(id.clone());
    }

    pub fn settled(&self, id: &RecordId) {
        self.ids().remove(id);
    }

    /// Returns when the invocation dies.
    pub async fn killed(&self) -> Boundary {
        self.0.fired.notified().await;
        self.0.boundary.unwrap_or(Boundary::BeforeClaim)
    }

    /// The attempts it took along: that of the step it died at, and those that were begun and not
    /// settled, which may have made a request.
    pub fn victims(&self) -> (Option<RecordId>, BTreeSet<RecordId>) {
        let at = self.0.at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (at, self.ids().clone())
    }

    fn ids(&self) -> std::sync::MutexGuard<'_, BTreeSet<RecordId>> {
        self.0.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dies around and inside the handler.
    pub fn layer(
        &self,
        clock: FastClock,
    ) -> LayerFn<impl Fn(JobService) -> Mortal + Clone + use<>> {
        let kill = self.clone();
        layer_fn(move |inner| Mortal { inner, kill: kill.clone(), clock })
    }
}

/// A handler that may die.
#[derive(Clone)]
pub struct Mortal {
    inner: JobService,
    kill: Kill,
    clock: FastClock,
}

impl Service<Call> for Mortal {
    type Response = Reply;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, BoxError>> + Send>>;

    fn poll_ready(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let id = call.context.id().clone();
        let running = self.inner.call(call);
        let (kill, clock) = (self.kill.clone(), self.clock);
        Box::pin(async move {
            kill.at(Boundary::BeforeEffect, &id).await;
            if kill.0.boundary != Some(Boundary::DuringEffect) {
                return running.await;
            }
            let until = clock.now() + kill.0.into_effect;
            let finished = before(&clock, until, running).await;
            kill.at(Boundary::DuringEffect, &id).await;
            finished.unwrap_or_else(|| Err("killed".into()))
        })
    }
}
