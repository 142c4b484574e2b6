//! A worker: jobs, a store, and the time and randomness they run on.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tower::{Layer, Service};

use super::Commits;
use super::stopping::Stopping;
#[cfg(any(test, feature = "test-util"))]
use crate::context::EffectObserver;
use crate::error::{BoxError, Error, ErrorKind};
use crate::handler::{Call, Job, JobService, Reply, Router};
use crate::protocol::{IdempotencyKey, Timestamp, handler_stop};
use crate::rules::MessageRules;
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::{Outbox, Store};
use crate::telemetry::Meter;

/// A message that names a job and a key. `Debug` shows neither its payload nor its key.
#[derive(Clone)]
pub struct Delivery {
    /// The job's name.
    pub job: String,
    /// Names the operation.
    pub key: IdempotencyKey,
    /// The payload as it came.
    pub body: String,
    /// The queue's id of the message.
    pub message_id: Option<String>,
    /// When it was enqueued, if the queue says so.
    pub enqueued_at: Option<Timestamp>,
    /// Set on a message that is to be in the queue once at a time.
    pub unique: Option<UniqueRow>,
}

/// Where it stands that a unique message waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueRow {
    /// The order key of its row in the outbox.
    pub row: String,
    /// Tells it from a later message of the same unique id.
    pub nonce: String,
}

impl fmt::Display for UniqueRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.row, self.nonce)
    }
}

impl UniqueRow {
    /// What a message's attribute says, if it says one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (row, nonce) = text.split_once('/')?;
        Some(Self { row: row.to_owned(), nonce: nonce.to_owned() })
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("job", &self.job).finish_non_exhaustive()
    }
}

/// The time an invocation has. Everything in it ends before `hard`, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Nothing is claimed any more, and handlers are stopped.
    pub stop: Timestamp,
    /// Attempts are settled: no record is written any more.
    pub settled: Timestamp,
    /// The queue has been told what to do with each message; what is left is to answer.
    pub told: Timestamp,
    /// The platform ends the invocation.
    pub hard: Timestamp,
    /// How long a claim is believed at a time, where claims are renewed while their jobs run;
    /// `None` in Lambda, where a claim is believed until the invocation's end.
    pub lease: Option<Duration>,
}

impl Deadline {
    /// The time left at `now` until the platform ends the invocation at `hard`. The margin kept to
    /// settle and answer is 2 s, or a tenth of the time left where that is less.
    pub fn new(now: Timestamp, hard: Timestamp) -> Self {
        let stop = handler_stop(now, hard);
        let margin = hard.since(stop);
        Self { stop, settled: hard - margin / 2, told: hard - margin / 4, hard, lease: None }
    }

    /// The same where nothing ends the process so soon: claims are made for `lease` at a time, and
    /// renewed while their jobs run.
    #[must_use]
    pub fn renewing(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// `at`, or one lease from `now` if that is sooner: the bound of a single call, where there is
    /// half a day for all of them.
    pub(crate) fn soon(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        self.lease.map_or(at, |lease| at.min(now + lease))
    }
}

/// How far clocks may differ, unless a worker is built with another margin.
pub const SKEW: Duration = Duration::from_secs(5);

/// Runs jobs once per key.
///
/// For each message: one conditional write claims its key, the handler runs, one more records the
/// completion. A duplicate costs one failed write and no read.
#[derive(Clone)]
pub struct Worker {
    pub(super) jobs: Arc<Router>,
    pub(super) commits: Commits,
    pub(super) namespace: String,
    pub(super) skew: Duration,
    concurrency: usize,
    pub(super) outside: Option<SocketAddr>,
    #[cfg(any(test, feature = "test-util"))]
    pub(super) observer: Option<Arc<dyn EffectObserver>>,
    pub(super) stopping: Stopping,
}

impl Worker {
    /// A worker that keeps its records in `store`; an `Arc` of one is a store, too.
    pub fn builder(store: impl Store) -> WorkerBuilder {
        WorkerBuilder {
            store: Arc::new(store),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
            namespace: "default".to_owned(),
            skew: SKEW,
            concurrency: 32,
            layers: Vec::new(),
            outside: None,
            #[cfg(any(test, feature = "test-util"))]
            observer: None,
        }
    }

    /// Asks the worker, and every clone of it, to end: nothing is claimed from now on, and handlers
    /// that still run at `by` are stopped and their jobs released.
    pub fn stop_by(&self, by: Timestamp) {
        self.stopping.ask(by);
    }

    /// How many jobs of a batch run at once.
    pub fn concurrency(&self) -> usize {
        self.concurrency
    }

    /// The worker's clock, to share with a queue.
    pub fn shared_clock(&self) -> Arc<dyn Clock> {
        self.commits.shared_clock()
    }

    /// What the worker and its clones have counted and measured.
    pub fn meter(&self) -> &Arc<Meter> {
        self.commits.meter()
    }

    /// The outbox of the store it keeps its records in.
    pub(crate) fn outbox(&self) -> Option<Arc<dyn Outbox>> {
        self.commits.shared_store().outbox()
    }

    /// How messages name their job and key.
    pub(crate) fn message_rules(&self) -> &MessageRules {
        self.jobs.message_rules()
    }

    /// The worker's clock.
    pub fn clock(&self) -> &dyn Clock {
        self.commits.clock()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

type Wrap = Box<dyn Fn(Job) -> Job>;

/// A [`Worker`] in the making.
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    namespace: String,
    skew: Duration,
    concurrency: usize,
    layers: Vec<Wrap>,
    outside: Option<SocketAddr>,
    #[cfg(any(test, feature = "test-util"))]
    observer: Option<Arc<dyn EffectObserver>>,
}

impl WorkerBuilder {
    /// How many jobs of a batch run at once; 32 by default.
    #[must_use]
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs.max(1);
        self
    }

    /// Separates deployments that share a table; `default` by default.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// How far the clocks of workers may differ; 5 s by default. A take-over waits this much
    /// longer than the lease.
    #[must_use]
    pub fn skew(mut self, skew: Duration) -> Self {
        self.skew = skew;
        self
    }

    /// Where time comes from; the machine's clock by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where randomness comes from; the operating system by default.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Wraps every job's handler in a tower layer, inside the claim. Later layers are further out.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<JobService> + 'static,
        L::Service: Service<Call, Response = Reply> + Clone + Send + Sync + 'static,
        <L::Service as Service<Call>>::Error: Into<BoxError>,
        <L::Service as Service<Call>>::Future: Send + 'static,
    {
        self.layers.push(Box::new(move |job| job.layer(&layer)));
        self
    }

    /// Who is told of every call of an effect's provider, and may break it off.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn EffectObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sends the requests of `http` effects here instead of to their hosts.
    #[cfg(feature = "cli")]
    pub(crate) fn outside(mut self, address: Option<SocketAddr>) -> Self {
        self.outside = address;
        self
    }

    /// The worker for these jobs. Refuses two jobs of one name, and a default that is none of them.
    pub fn build(self, jobs: Router) -> Result<Worker, Error> {
        if let Some(name) = jobs.name_twice() {
            return Err(Error::new(ErrorKind::Config, "build the worker")
                .with_detail(format!("job {name:?} is there twice; rename or remove one")));
        }
        if let Some(name) = &jobs.message_rules().default_job
            && jobs.get(name).is_none()
        {
            return Err(Error::new(ErrorKind::Config, "build the worker")
                .with_detail(format!("the default job {name:?} is not there; add or correct it")));
        }
        if let Some(name) = jobs.staging_rows().filter(|_| !self.store.capabilities().rows) {
            return Err(Error::new(ErrorKind::Config, "build the worker").with_detail(format!(
                "job {name:?} writes a row, and this store commits none along with a completion; \
                 keep its records on DynamoDB, Postgres or SQLite"
            )));
        }
        let jobs = self.layers.iter().fold(jobs, |jobs, wrap| jobs.map(wrap));
        Ok(Worker {
            jobs: Arc::new(jobs),
            commits: Commits::new(self.store, self.clock, self.entropy),
            namespace: self.namespace,
            skew: self.skew,
            concurrency: self.concurrency,
            outside: self.outside,
            #[cfg(any(test, feature = "test-util"))]
            observer: self.observer,
            stopping: Stopping::new(),
        })
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
