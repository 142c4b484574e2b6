//! One job through every crash point.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use super::boundary::{Crossing, Fate, Gate};
use super::report::CrashReport;
use super::story::Story;
use super::time::{SeededEntropy, VirtualClock};
use super::witness::Broken;
use super::world::{World, operation};
use crate::front::Message;
use crate::handler::{Job, Router};
use crate::local::{Invocation, LocalQueue, Poller, QueueSettings};
use crate::protocol::{Status, Timestamp};
use crate::runtime::Clock;
use crate::store::{MemoryStore, Store};

/// Kills a job at every call that crosses its worker's boundary, then at every pair of them, and
/// says what its effects did.
///
/// Each call (a write of its record, a request or question to a provider, a message sent to
/// quarantine, a delay, the answer) is tried four ways: the worker dies before it or after it, or
/// lives on without an answer, the call made or not. The message is redelivered, in virtual time,
/// until all is quiet; what ends among the dead letters as failed is redriven once. Then every
/// promise is checked.
///
/// `job` is made anew for each case, so that a provider of yours that it calls may remember things.
/// Its providers must be in the process: time stands still while there is work, and leaps when
/// there is none. It stages [`RowWrite`](crate::store::RowWrite)s.
///
/// ```
/// use onlyonce::{Context, HandlerError, Job};
/// use onlyonce::test_util::check_crash_points;
///
/// async fn charge(cents: u64, cx: Context) -> Result<u64, HandlerError> {
///     cx.effect("charge").keyed(async |_key| Ok::<_, HandlerError>(cents)).await
/// }
///
/// let report = check_crash_points(|| Job::new("charge", charge), 1200);
/// assert!(report.holds(), "{report}");
/// ```
pub fn check_crash_points(
    job: impl Fn() -> Job + Send,
    payload: impl Serialize + Send,
) -> CrashReport {
    CrashPoints::default().check(move || (job(), ()), payload, |(), _| Ok(()))
}

/// What is tried at each call.
#[derive(Clone, Debug)]
pub struct CrashPoints {
    /// What becomes of a call.
    pub fates: Vec<Fate>,
    /// Whether each pair of calls is tried, too.
    pub pairs: bool,
}

impl Default for CrashPoints {
    /// Deaths and lost answers, one at a time and two.
    fn default() -> Self {
        let fates = vec![Fate::DiesBefore, Fate::DiesAfter, Fate::LosesRequest, Fate::LosesReply];
        Self { fates, pairs: true }
    }
}

/// Where a case has ended.
pub(super) struct End {
    pub crossings: Vec<(Crossing, Fate)>,
    pub story: Story,
    pub broken: Vec<Broken>,
    /// How many of the planned faults came to pass.
    pub met: usize,
}

impl End {
    pub fn status(&self) -> Option<Status> {
        self.story.record.as_ref().map(|record| record.status)
    }
}

impl CrashPoints {
    /// As [`check_crash_points`], with a look of your own at each case's end: `look` gets what `job`
    /// has made beside the job, such as a provider that counts, and says what is wrong.
    pub fn check<T>(
        &self,
        job: impl Fn() -> (Job, T) + Send,
        payload: impl Serialize + Send,
        look: impl Fn(T, &Story) -> Result<(), String> + Send,
    ) -> CrashReport {
        let place = || -> Place { (Arc::new(MemoryStore::new()), "key".to_owned()) };
        self.check_over(place, job, payload, look)
    }

    /// As [`check`](Self::check), over stores of yours: `place` says for each case where its record
    /// goes, and under which key, which must be a fresh one.
    ///
    /// Time is virtual and leaps whenever nothing is at work in the process: a store with a server
    /// must hold the thread while it asks it.
    pub fn check_over<T>(
        &self,
        place: impl Fn() -> (Arc<dyn Store>, String) + Send,
        job: impl Fn() -> (Job, T) + Send,
        payload: impl Serialize + Send,
        look: impl Fn(T, &Story) -> Result<(), String> + Send,
    ) -> CrashReport {
        // A thread of its own, so that it can be called inside a runtime as well as outside.
        std::thread::scope(|scope| {
            let checking = scope.spawn(move || {
                let body = serde_json::to_string(&payload).unwrap_or_default();
                self.all(&place, &job, &body, &look)
            });
            checking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn all<T>(
        &self,
        place: &dyn Fn() -> Place,
        job: &dyn Fn() -> (Job, T),
        body: &str,
        look: &dyn Fn(T, &Story) -> Result<(), String>,
    ) -> CrashReport {
        let run = |plan: &[(usize, Fate)]| {
            let (job, made) = job();
            let mut end = run(place(), job, body, plan);
            if let Err(what) = look(made, &end.story) {
                end.broken.push(Broken { invariant: 0, what });
            }
            end
        };
        let calm = run(&[]);
        let mut report = CrashReport::new(&calm);
        let each = |calls: std::ops::Range<usize>| {
            calls.flat_map(|call| self.fates.iter().map(move |fate| (call, *fate)))
        };
        // One fault first: what it breaks is told in the fewest words.
        let mut pairs = Vec::new();
        for first in each(0..calm.crossings.len()) {
            let end = run(&[first]);
            report.add(&calm, &[first], &end);
            let seconds = if self.pairs { first.0 + 1..end.crossings.len() } else { 0..0 };
            pairs.extend(each(seconds).map(|second| [first, second]));
        }
        for pair in pairs {
            report.add(&calm, &pair, &run(&pair));
        }
        report
    }
}

const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);
/// An invocation's time; its message is hidden a little longer.
const TIMEOUT: Duration = Duration::from_secs(60);
const VISIBILITY: Duration = Duration::from_secs(70);

/// A store, and a key that is free there.
type Place = (Arc<dyn Store>, String);

/// Runs one message to the end.
fn run((store, key): Place, job: Job, body: &str, plan: &[(usize, Fate)]) -> End {
    let quiet = async {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(START));
        let settings =
            QueueSettings { name: "crash".to_owned(), visibility: VISIBILITY, max_receives: 100 };
        let queue = LocalQueue::new(settings, clock.clone());
        let planned = Arc::new(Planned { plan: plan.to_vec(), met: AtomicUsize::new(0) });
        let entropy = Arc::new(SeededEntropy::new(0, 0.5));
        let message = Message::new(&job.name, &key, body);
        let jobs = Router::new().with(job);
        let world = World::new(jobs, queue, clock.clone(), entropy, planned.clone()).over(store);
        let id = operation(&message);
        world.queue.send_message(message);

        let poller = Poller { batch: 1, concurrency: 1, timeout: TIMEOUT };
        let invoke = async |invocation: &Invocation| world.invoke(clock.clone(), invocation).await;
        poller.run(&world.queue, invoke).await;
        if !world.queue.dead().is_empty() {
            // A failed record is re-opened by messages sent clearly after its failure.
            clock.sleep_until(clock.now() + Duration::from_secs(6)).await;
            world.queue.redrive();
            poller.run(&world.queue, invoke).await;
        }
        world.witness.rest();
        End {
            crossings: world.witness.crossings(),
            story: id.map(|id| world.witness.story(&id)).unwrap_or_default(),
            broken: world.witness.broken(),
            met: planned.met.load(Ordering::Relaxed),
        }
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    match runtime.enable_time().start_paused(true).build() {
        Ok(runtime) => runtime.block_on(quiet),
        Err(error) => End {
            crossings: Vec::new(),
            story: Story::default(),
            broken: vec![Broken { invariant: 0, what: format!("no runtime: {error}") }],
            met: 0,
        },
    }
}

/// Lets everything pass but what is planned.
struct Planned {
    plan: Vec<(usize, Fate)>,
    met: AtomicUsize,
}

#[async_trait]
impl Gate for Planned {
    async fn fate(&self, crossing: &Crossing) -> Fate {
        let planned = self.plan.iter().find(|(number, _)| *number == crossing.number);
        let Some((_, fate)) = planned else { return Fate::Passes };
        self.met.fetch_add(1, Ordering::Relaxed);
        *fate
    }
}
