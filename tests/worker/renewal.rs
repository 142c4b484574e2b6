//! Outside Lambda: a claim is renewed while its job runs, and ends with the job and not after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::Context;
use onlyonce::error::{Error, HandlerError};
use onlyonce::front::{Message, run_batch};
use onlyonce::handler::{Job, Router};
use onlyonce::local::{LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::{
    Claim, ClaimRequest, ConditionalWrite, Retention, RetryPolicy, Status, claim,
};
use onlyonce::runtime::Clock;
use onlyonce::service::{Deadline, Ending, Worker};
use onlyonce::store::{Commit, MemoryStore, Overlay, StagedWrite, Store};
use onlyonce::test_util::{
    Crossing, Fate, Fault, Gate, Kind, SeededEntropy, VirtualClock, World, operation,
};
use serde_json::{Value, json};

use crate::kit::{
    Kit, Runs, SECOND, START, claim_of, delivery, id, in_group, jobs, message, pause,
};

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_job_of_many_leases_runs_once_though_others_ask_for_it() {
    let kit = Kit::new([]);
    let slow = delivery("slow", "a", "{\"ms\":95000}");
    let running = kit.handle_renewing(slow.clone(), LEASE);
    let asking = async {
        for _ in 0..9 {
            kit.wait(LEASE).await;
            let now = kit.clock.now();
            let outcome = kit.handle_renewing(slow.clone(), LEASE).await;
            let Ending::Busy(until) = outcome.ending else { panic!("{:?}", outcome.ending) };
            assert!(until > now && until <= now + LEASE + SECOND * 6, "a lease is bounded");
        }
    };
    let (outcome, ()) = tokio::join!(running, asking);
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{:?}", outcome.ending);
    assert_eq!(kit.runs.count(), 1);
    assert_eq!(kit.record("slow", "a").await.unwrap().status, Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn without_a_lease_of_its_own_a_claim_costs_no_write_more() {
    let kit = Kit::new([]);
    kit.handle_within(delivery("slow", "a", "{\"ms\":800000}"), SECOND * 900).await;
    assert_eq!(kit.store.commits(), 2, "claim and completion");
    let kit = Kit::new([]);
    kit.handle_renewing(delivery("slow", "a", "{\"ms\":2900}"), LEASE).await;
    assert_eq!(kit.store.commits(), 2, "a job that ends before a third of its lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_renewed_beyond_the_jobs_own_timeout() {
    let timed = |router: Router, runs: &Runs| {
        let runs = runs.clone();
        let handler = move |_: Value, cx: Context| {
            runs.one_more();
            async move {
                pause(&cx, SECOND * 1000).await;
                Ok::<_, HandlerError>(())
            }
        };
        let retry = RetryPolicy::fixed(SECOND, 3);
        router.with(Job::new("timed", handler).timeout(SECOND * 25).retry(retry))
    };
    let kit = Kit::with([], timed);
    let outcome = kit.handle_renewing(delivery("timed", "a", "{}"), LEASE).await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{:?}", outcome.ending);
    assert_eq!(kit.clock.now(), START + SECOND * 23, "two seconds before the job's time is over");
    let record = kit.record("timed", "a").await.unwrap();
    assert_eq!(record.lease_until, START + SECOND * 25);
}

/// Counts itself out when it is dropped.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A job that never ends by itself, and how many of it are running.
fn endless(inside: &Arc<AtomicUsize>) -> impl FnOnce(Router, &Runs) -> Router {
    let inside = inside.clone();
    move |router, _| {
        router.job("endless", move |_: Value, cx: Context| {
            inside.fetch_add(1, Ordering::SeqCst);
            let inside = Inside(inside.clone());
            async move {
                let _inside = inside;
                pause(&cx, SECOND * 40_000).await;
                Ok::<_, HandlerError>(())
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_cancels_the_handler_and_settles_nothing() {
    let inside = Arc::new(AtomicUsize::new(0));
    let kit = Kit::with([], endless(&inside));
    let running = kit.handle_renewing(delivery("endless", "a", "{}"), LEASE);
    let taking = async {
        kit.wait(SECOND * 62).await;
        assert_eq!(inside.load(Ordering::SeqCst), 1);
        // By hand, as if this worker's clock were far behind.
        let now = kit.clock.now() + SECOND * 3600;
        let request = ClaimRequest { fingerprint: None, ..claim_of("endless", "a", now) };
        let record = kit.record("endless", "a").await.unwrap();
        let request = ClaimRequest { fingerprint: record.fingerprint.clone(), ..request };
        let Claim::Take { write, .. } = claim(Some(record), &request, now) else {
            panic!("it is free by that clock")
        };
        assert_eq!(kit.store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        kit.record("endless", "a").await.unwrap()
    };
    let (outcome, taken) = tokio::join!(running, taking);
    assert!(matches!(outcome.ending, Ending::LostLease), "{:?}", outcome.ending);
    assert_eq!(inside.load(Ordering::SeqCst), 0, "it is stopped, and joined");
    let third = LEASE / 3;
    assert!(kit.clock.now() <= START + SECOND * 62 + third, "with the next renewal");
    assert_eq!(kit.record("endless", "a").await.unwrap(), taken, "the successor's is untouched");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_is_asked_again() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Contend, Fault::Refuse] {
        let faults = [Fault::None].into_iter().chain([fault; 5]);
        let kit = Kit::new(faults);
        let outcome = kit.handle_renewing(delivery("slow", "a", "{\"ms\":35000}"), LEASE).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{fault:?}: {:?}", outcome.ending);
        assert_eq!(kit.runs.count(), 1);
    }
    for fault in [Fault::Hang, Fault::HangAfter] {
        let kit = Kit::new([Fault::None, fault]);
        let outcome = kit.handle_renewing(delivery("slow", "a", "{\"ms\":35000}"), LEASE).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{fault:?}: {:?}", outcome.ending);
        assert_eq!(kit.runs.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_renewed_is_given_up_before_its_lease_ends() {
    for fault in [Fault::LoseRequest, Fault::Hang, Fault::Refuse] {
        let inside = Arc::new(AtomicUsize::new(0));
        let faults = [Fault::None].into_iter().chain([fault; 1000]);
        let kit = Kit::with(faults, endless(&inside));
        let outcome = kit.handle_renewing(delivery("endless", "a", "{}"), LEASE).await;
        assert!(matches!(outcome.ending, Ending::StoreError), "{fault:?}: {:?}", outcome.ending);
        assert_eq!(inside.load(Ordering::SeqCst), 0, "{fault:?}: it is stopped, and joined");
        assert!(kit.clock.now() <= START + LEASE, "{fault:?}: while the claim is still believed");
    }
}

/// A store that does not answer for a while.
struct Silent {
    inner: Arc<dyn Store>,
    clock: VirtualClock,
    /// Milliseconds after the start.
    from_to: (u64, u64),
}

#[async_trait]
impl Overlay for Silent {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let ms = u64::try_from(self.clock.now().since(START).as_millis()).unwrap();
        if (self.from_to.0..self.from_to.1).contains(&ms) {
            return std::future::pending().await;
        }
        self.inner.commit(write, staged).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_silent_for_a_while_costs_the_attempt_only_if_that_is_too_long() {
    // Silent until a job of 30 s has been stopped for it, or not quite so long.
    for (silent, is_done) in [((2_000, 7_000), true), ((2_000, 9_000), false)] {
        let runs = Runs::default();
        let clock = VirtualClock::new(START);
        let inner = Arc::new(MemoryStore::new());
        let store = Arc::new(Silent { inner, clock: clock.clone(), from_to: silent });
        let worker = Worker::builder(store.clone()).clock(Arc::new(clock.clone()));
        let worker = worker.build(jobs(&runs)).unwrap();
        let now = clock.now();
        let deadline = Deadline::new(now, now + SECOND * 43_200).renewing(LEASE);
        let outcome = worker.handle(delivery("slow", "a", "{\"ms\":30000}"), deadline).await;
        let record = store.load(&id("slow", "a")).await.unwrap().unwrap();
        if is_done {
            assert!(matches!(outcome.ending, Ending::Completed(_)), "{:?}", outcome.ending);
            assert_eq!(record.status, Status::Completed);
        } else {
            // It was stopped in time, and the store is back in time to be told of it.
            assert!(matches!(outcome.ending, Ending::Released(_)), "{:?}", outcome.ending);
            assert_eq!(record.status, Status::Released);
            assert!(clock.now() <= START + LEASE);
        }
        assert_eq!(runs.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewed_record_outlives_its_lease_even_with_a_short_retention() {
    let brief = |router: Router, _: &Runs| {
        let handler = |_: Value, cx: Context| async move {
            pause(&cx, SECOND * 60).await;
            Ok::<_, HandlerError>(())
        };
        router.with(Job::new("brief", handler).retention(Retention::For(SECOND)))
    };
    let kit = Kit::with([], brief);
    let running = kit.handle_renewing(delivery("brief", "a", "{}"), LEASE);
    let looking = async {
        for _ in 0..5 {
            kit.wait(LEASE).await;
            let record = kit.record("brief", "a").await.unwrap();
            assert!(record.lease_until > kit.clock.now());
            assert!(!record.expires_at.unwrap().is_past(record.lease_until + SECOND * 4));
        }
    };
    tokio::join!(running, looking);
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_a_group_is_hidden_along_with_what_runs() {
    let kit = Kit::new([]);
    let messages: Vec<_> = (0..3)
        .map(|n| {
            let key = format!("k{n}");
            in_group("g", message(&format!("m{n}"), "slow", &key, "{\"ms\":12000}"))
        })
        .collect();
    let now = kit.clock.now();
    let deadline = Deadline::new(now, now + SECOND * 43_200).renewing(LEASE);
    let again = run_batch(&kit.worker, &kit.queue, &messages, deadline).await;
    assert!(again.is_empty() && kit.runs.count() == 3);
    let delays = kit.queue.delays.lock().unwrap().clone();
    assert!(delays.iter().all(|(_, seconds)| *seconds == 10), "{delays:?}");
    // 36 s, a third of a lease at a time: those that are done as well, until they are deleted.
    for id in ["m0", "m1", "m2"] {
        let times = delays.iter().filter(|(message, _)| message == id).count();
        assert!((9..=15).contains(&times), "{id}: {times} times");
    }
}

/// Holds the first renewal up for long enough that its handler ends meanwhile.
struct HoldsUp {
    fate: Fate,
    seen: Mutex<usize>,
}

#[async_trait]
impl Gate for HoldsUp {
    #[allow(clippy::disallowed_methods, reason = "virtual time")]
    async fn fate(&self, crossing: &Crossing) -> Fate {
        if crossing.kind != Kind::Renew {
            return Fate::Passes;
        }
        let seen = {
            let mut seen = self.seen.lock().unwrap();
            *seen += 1;
            *seen
        };
        if seen > 1 {
            return Fate::Passes;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        self.fate
    }
}

/// A renewal leaves three seconds after the claim and is under way for a second and a half; the
/// handler ends in the middle of it.
async fn ends_while_a_renewal_is_under_way(job: &str, fate: Fate) -> (World, Runs) {
    let clock = VirtualClock::new(START);
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let runs = Runs::default();
    let settings =
        QueueSettings { name: "renew".to_owned(), visibility: SECOND * 60, max_receives: 9 };
    let queue = LocalQueue::new(settings, shared.clone());
    let gate = Arc::new(HoldsUp { fate, seen: Mutex::new(0) });
    let entropy = Arc::new(SeededEntropy::new(0, 0.5));
    let world = World::new(ending(&runs), queue, shared.clone(), entropy, gate).renewing(LEASE);
    let message = Message::new(job, "a", json!({}).to_string());
    let of = operation(&message).unwrap();
    assert_eq!(of, id(job, "a"));
    world.queue.send_message(message);
    let poller = Poller { batch: 1, concurrency: 1, timeout: SECOND * 50 };
    let first = Mutex::new(true);
    let invoke = async |invocation: &onlyonce::local::Invocation| {
        let told = world.invoke(shared.clone(), invocation).await;
        if std::mem::take(&mut *first.lock().unwrap()) {
            // Whatever is still under way has time to land, and must not.
            let settled = world.store.load(&of).await.unwrap().unwrap();
            assert_ne!(settled.status, Status::Claimed, "{job}, {fate:?}");
            clock.sleep_until(clock.now() + SECOND * 9).await;
            let later = world.store.load(&of).await.unwrap().unwrap();
            assert_eq!(settled, later, "{job}, {fate:?}: nothing lands after the end");
        }
        told
    };
    poller.run(&world.queue, invoke).await;
    world.witness.rest();
    (world, runs)
}

/// Jobs that end three and a half seconds after they began: well, badly, for good.
fn ending(runs: &Runs) -> Router {
    let job = |name: &'static str, end: fn(usize) -> Result<(), HandlerError>| {
        let runs = runs.clone();
        let handler = move |_: Value, cx: Context| {
            let run = runs.one_more();
            async move {
                pause(&cx, Duration::from_millis(3500)).await;
                end(run)
            }
        };
        Job::new(name, handler).retry(RetryPolicy::fixed(SECOND * 20, 3))
    };
    Router::new()
        .with(job("completes", |_| Ok(())))
        .with(job("stumbles", |run| match run {
            1 => Err(HandlerError::retryable("once")),
            _ => Ok(()),
        }))
        .with(job("fails", |_| Err(HandlerError::terminal("for good"))))
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_races_the_end_neither_revives_the_claim_nor_loses_it() {
    let late = |ms| Fate::LandsLater(Duration::from_millis(ms));
    for fate in [
        Fate::Passes,
        Fate::LosesRequest,
        Fate::LosesReply,
        Fate::Hangs,
        Fate::HangsAfter,
        Fate::Contends,
        Fate::Refused,
        late(1),
        late(30),
        late(400),
        late(8_000),
    ] {
        for (job, expected, runs) in [
            ("completes", Status::Completed, 1),
            ("stumbles", Status::Completed, 2),
            ("fails", Status::Failed, 1),
        ] {
            let (world, ran) = ends_while_a_renewal_is_under_way(job, fate).await;
            let story = world.witness.story(&id(job, "a"));
            assert_eq!(world.witness.broken(), [], "{job}, {fate:?}");
            assert_eq!(story.record.unwrap().status, expected, "{job}, {fate:?}");
            assert_eq!(ran.count(), runs, "{job}, {fate:?}");
        }
    }
}
