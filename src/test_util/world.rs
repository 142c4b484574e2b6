//! A worker's surroundings, all in the process: store, queue, time, and somebody who watches.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use serde_json::Value;
use tower::Service;
use tower::layer::layer_fn;

use super::boundary::{Gate, Kind};
use super::crossing::{Crossed, Life};
use super::gated::{GatedEffects, GatedQueue, GatedStore};
use super::witness::Witness;
use crate::error::{BoxError, Error};
use crate::front::{ATTRIBUTE_JOB, ATTRIBUTE_KEY, AttributeValue, Message, answer_within};
use crate::handler::{Call, JobService, Reply, Router};
use crate::local::{Invocation, LocalQueue};
use crate::protocol::{IdempotencyKey, RecordId};
use crate::runtime::{Clock, Entropy};
use crate::service::{Deadline, Worker};
use crate::store::{MemoryStore, Store};

const NAMESPACE: &str = "default";

/// The real front and service over a store and a queue of its own. What becomes of each call, its
/// gate decides; what must hold, its witness checks.
pub struct World {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The queue.
    pub queue: LocalQueue,
    /// What was seen.
    pub witness: Arc<Witness>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    jobs: Router,
    skew: Duration,
    lease: Option<Duration>,
    gate: Arc<dyn Gate>,
    invocations: AtomicUsize,
    calls: Arc<AtomicUsize>,
}

impl World {
    /// A new one, in which nothing has happened, over a store in memory. `clock` shows the true time, which is the queue's.
    /// Messages name their job and key by attributes.
    pub fn new(
        jobs: Router,
        queue: LocalQueue,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        gate: Arc<dyn Gate>,
    ) -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            queue,
            witness: Arc::new(Witness::new(jobs.clone())),
            clock,
            entropy,
            jobs,
            skew: Duration::from_secs(5),
            lease: None,
            gate,
            invocations: AtomicUsize::new(0),
            calls: Arc::default(),
        }
    }

    /// The same over another store. What it stages in a form of its own does not land late.
    #[must_use]
    pub fn over(self, store: Arc<dyn Store>) -> Self {
        Self { store, ..self }
    }

    /// The same, where claims are made for `lease` at a time and renewed, as they are outside Lambda.
    #[must_use]
    pub fn renewing(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Runs one invocation on a worker with this clock, and answers what Lambda would be told:
    /// `None` of an invocation that died.
    pub async fn invoke(&self, clock: Arc<dyn Clock>, invocation: &Invocation) -> Option<Value> {
        let number = self.invocations.fetch_add(1, Ordering::Relaxed);
        let (witness, gate) = (self.witness.clone(), self.gate.clone());
        let life = Life::new(number, witness, self.clock.clone(), gate, self.calls.clone());
        // However it ends, nothing of it goes on.
        let _over = Over(life.clone());
        let hard = clock.now() + invocation.hard.since(self.clock.now());
        let deadline = Deadline { lease: self.lease, ..Deadline::new(clock.now(), hard) };
        let worker = self.worker(&life, clock).ok()?;
        let queue = GatedQueue { life: life.clone(), inner: self.queue.clone() };
        let answering = async {
            let event = &invocation.event;
            let answered = answer_within(&worker, &queue, event, deadline).await.ok()?;
            let told = life.cross(Kind::Answer, None, async { answered }, drop).await;
            let Crossed::Answered(answered) = told else { return None };
            serde_json::to_value(answered).ok()
        };
        let told = tokio::select! {
            biased;
            () = life.ended() => None,
            told = answering => told,
        };
        if let Some(told) = &told {
            self.acked(invocation, told);
        }
        told
    }

    fn worker(&self, life: &Arc<Life>, clock: Arc<dyn Clock>) -> Result<Worker, Error> {
        let store = GatedStore { life: life.clone(), inner: self.store.clone() };
        let witness = self.witness.clone();
        Worker::builder(store)
            .clock(clock)
            .entropy(self.entropy.clone())
            .namespace(NAMESPACE)
            .skew(self.skew)
            .observer(Arc::new(GatedEffects(life.clone())))
            .layer(layer_fn(move |inner| Seen { inner, witness: witness.clone() }))
            .build(self.jobs.clone())
    }

    /// The answer is about to delete what it does not report.
    fn acked(&self, invocation: &Invocation, told: &Value) {
        let failures = told.get("batchItemFailures").and_then(Value::as_array);
        let id = |failure: &Value| Some(failure.get("itemIdentifier")?.as_str()?.to_owned());
        let failed: Vec<String> = failures.into_iter().flatten().filter_map(id).collect();
        for message in invocation.messages().iter().filter(|it| !failed.contains(&it.id)) {
            if let Some(id) = operation(message) {
                let is_copy = |dead: &Message| operation(dead).as_ref() == Some(&id);
                self.witness.acked(&id, || self.queue.dead().iter().any(is_copy));
            }
        }
    }
}

/// The operation that a message asks for in a [`World`], by its attributes.
pub fn operation(message: &Message) -> Option<RecordId> {
    let text = |name: &str| match &message.attributes.get(name)?.value {
        AttributeValue::Text(text) => Some(text.as_str()),
        AttributeValue::Binary(_) => None,
    };
    let key = IdempotencyKey::new(text(ATTRIBUTE_KEY)?).ok()?;
    Some(RecordId::new(NAMESPACE, text(ATTRIBUTE_JOB)?, &key))
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

/// Ends an invocation when it is dropped.
struct Over(Arc<Life>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// A handler under observation.
#[derive(Clone)]
struct Seen {
    inner: JobService,
    witness: Arc<Witness>,
}

/// Tells the witness of a handler's end, however it comes.
struct Running(Arc<Witness>, RecordId);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ran(&self.1);
    }
}

impl Service<Call> for Seen {
    type Response = Reply;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, BoxError>> + Send>>;

    fn poll_ready(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(task)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let (witness, id) = (self.witness.clone(), call.context.id().clone());
        let is_alone = witness.runs(&call);
        let running = is_alone.then(|| Running(witness, id));
        let handled = self.inner.call(call);
        Box::pin(async move {
            let _running = running;
            handled.await
        })
    }
}
