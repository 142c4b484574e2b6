//! How attempts end: retried, given up, stopped, too large, wrapped in layers.

use std::time::Duration;

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{
    Change, Claim, EffectRecord, EffectState, Output, Quarantine, RetryPolicy, Status, claim,
};
use onlyonce::service::{Ending, Worker};
use onlyonce::store::{Columns, MemoryStore, RowValue, RowWrite, Store};
use onlyonce::test_util::Fault;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tower::timeout::TimeoutLayer;

use crate::kit::{Kit, SECOND, START, delivery, message, pause};

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_in_the_record_not_by_deliveries() {
    let kit = Kit::new([]);
    let stumble = || delivery("stumble", "k", "{}");
    for attempt in 1..=3 {
        let outcome = kit.handle(stumble()).await;
        assert_eq!(outcome.attempt, Some(attempt));
        // Deliveries that come too early, as after a throttle, use nothing up.
        for _ in 0..5 {
            let early = kit.handle(stumble()).await;
            let is_waiting = matches!(early.ending, Ending::Later(_) | Ending::FailedBefore(_));
            assert!(is_waiting, "{early:?}");
        }
        kit.wait(SECOND * 10).await;
    }
    let record = kit.record("stumble", "k").await.unwrap();
    assert_eq!((record.status, record.attempt, kit.runs.count()), (Status::Failed, 3, 3));
    assert_eq!(record.error.as_deref(), Some("a bad gateway"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_delayed_until_it_is_due() {
    let kit = Kit::new([]);
    let failed = kit.batch(&[message("m", "stumble", "k", "{}")], SECOND * 60).await;
    assert_eq!(failed, ["m"]);
    assert_eq!(kit.queue.delay_of("m"), Some(10));
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_is_quarantined_marked_and_acknowledged() {
    let kit = Kit::new([]);
    let message = message("m", "refuse", "user:42", "{\"card\":4242}");
    assert_eq!(kit.batch(&[message], SECOND * 60).await, [""; 0]);
    let record = kit.record("refuse", "user:42").await.unwrap();
    assert_eq!((record.status, record.quarantine), (Status::Failed, Some(Quarantine::Sent)));
    let (id, mark) = kit.queue.quarantined.lock().unwrap()[0].clone();
    assert_eq!((id.as_str(), mark.cause.as_str()), ("m", "failed"));
    assert_eq!((mark.key, mark.token), (Some(record.id.to_string()), Some(1)));
    assert_eq!((mark.error.as_str(), mark.job.as_deref()), ("a declined card", Some("refuse")));
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_mark_leaves_a_second_copy_never_none() {
    // The write that marks the record as quarantined is lost for good.
    let kit = Kit::new([Fault::None, Fault::None, Fault::Refuse]);
    let copy = || [message("m", "refuse", "k", "{}")];
    assert_eq!(kit.batch(&copy(), SECOND * 60).await, [""; 0]);
    let record = kit.record("refuse", "k").await.unwrap();
    assert_eq!(record.quarantine, Some(Quarantine::Pending));
    // The next copy sends it again, and marks; the one after does neither.
    for quarantined in [2, 2] {
        assert_eq!(kit.batch(&copy(), SECOND * 60).await, [""; 0]);
        assert_eq!(kit.queue.causes().len(), quarantined);
    }
    assert_eq!(kit.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_quarantine_a_failed_message_is_left_to_redrive() {
    let mut kit = Kit::new([]);
    kit.queue.no_quarantine = true;
    for _ in 0..2 {
        assert_eq!(kit.batch(&[message("m", "refuse", "k", "{}")], SECOND * 60).await, ["m"]);
    }
    assert_eq!((kit.runs.count(), kit.queue.delay_of("m")), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_redriven_message_runs_a_failed_job_once_more_a_stray_copy_does_not() {
    let kit = Kit::new([]);
    kit.batch(&[message("m", "refuse", "k", "{}")], SECOND * 60).await;
    kit.wait(SECOND * 60).await;
    kit.batch(&[message("m", "refuse", "k", "{}")], SECOND * 60).await;
    assert_eq!(kit.runs.count(), 1);

    let mut redriven = message("another id", "refuse", "k", "{}");
    redriven.sent_at = Some(START + SECOND * 59);
    kit.batch(&[redriven], SECOND * 60).await;
    assert_eq!(kit.runs.count(), 2);
    let record = kit.record("refuse", "k").await.unwrap();
    assert_eq!((record.token.0, record.attempt), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_redriven_at_once_is_quarantined_again_and_never_lost() {
    let kit = Kit::new([]);
    kit.batch(&[message("m", "refuse", "k", "{}")], SECOND * 60).await;
    // Within the margin of the clocks nobody can tell it from a copy sent before the failure; but
    // it has left the dead letters, and would be gone.
    let mut redriven = message("another id", "refuse", "k", "{}");
    redriven.sent_at = Some(START + SECOND);
    kit.wait(SECOND).await;
    assert_eq!(kit.batch(&[redriven], SECOND * 60).await, [""; 0]);
    let causes = ["m", "another id"].map(|id| (id.to_owned(), "failed".to_owned()));
    assert_eq!((kit.runs.count(), kit.queue.causes()), (1, causes.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_completed_duplicate_is_always_acknowledged() {
    let kit = Kit::new([]);
    for _ in 0..20 {
        assert_eq!(kit.batch(&[message("m", "echo", "k", "{}")], SECOND * 60).await, [""; 0]);
    }
    assert_eq!((kit.runs.count(), kit.queue.causes().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_quarantined_and_never_run_again() {
    let kit = Kit::with([], |router, runs| {
        let runs = runs.clone();
        router.job("guess", move |_: Value, _: Context| {
            let runs = runs.clone();
            async move {
                runs.one_more();
                Err::<(), _>(HandlerError::unknown("the line went dead"))
            }
        })
    });
    let mut later = message("m", "guess", "k", "{}");
    for _ in 0..2 {
        assert_eq!(kit.batch(&[later.clone()], SECOND * 60).await, [""; 0]);
        kit.wait(SECOND * 600).await;
        later.sent_at = Some(START + SECOND * 590);
    }
    assert_eq!(kit.runs.count(), 1);
    let causes = kit.queue.causes();
    assert!(causes.len() == 2 && causes.iter().all(|(_, cause)| cause == "unknown"), "{causes:?}");
    let record = kit.record("guess", "k").await.unwrap();
    assert_eq!((record.status, record.expires_at), (Status::Unknown, None));
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_stopped_before_its_lease_ends_and_released() {
    let kit = Kit::new([]);
    let outcome = kit.handle_within(delivery("slow", "k", "{\"ms\":900000}"), SECOND * 30).await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
    let record = kit.record("slow", "k").await.unwrap();
    assert_eq!((record.status, record.updated_at), (Status::Released, START + SECOND * 28));
    assert!(record.updated_at < record.lease_until);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_to_end_claims_nothing_more_and_releases_what_runs() {
    let kit = Kit::new([]);
    let (running, quick, ()) = tokio::join!(
        kit.handle(delivery("slow", "long", "{\"ms\":50000}")),
        kit.handle(delivery("slow", "short", "{\"ms\":12000}")),
        async {
            kit.wait(SECOND * 5).await;
            kit.worker.stop_by(kit.worker.clock().now() + SECOND * 10);
        }
    );
    assert!(matches!(running.ending, Ending::Released(_)), "{running:?}");
    assert!(matches!(quick.ending, Ending::Completed(_)), "{quick:?}");
    let record = kit.record("slow", "long").await.unwrap();
    assert_eq!((record.status, record.updated_at), (Status::Released, START + SECOND * 15));
    let late = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(late.ending, Ending::NotStarted), "{late:?}");
    assert_eq!(kit.record("echo", "k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_jobs_own_timeout_ends_its_lease() {
    let kit = Kit::with([], |router, _| {
        router.with(
            Job::new("brief", |_: Value, cx: Context| async move {
                pause(&cx, SECOND * 900).await;
                Ok::<_, HandlerError>(())
            })
            .timeout(SECOND * 10)
            .retry(RetryPolicy::none()),
        )
    });
    let outcome = kit.handle(delivery("brief", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    let record = kit.record("brief", "k").await.unwrap();
    assert_eq!((record.lease_until, record.updated_at), (START + SECOND * 10, START + SECOND * 9));
}

/// Does not give its thread back, so it cannot be stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_cannot_be_stopped_is_not_settled() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let jobs = Router::new().job("stuck", move |_: Value, _: Context| {
        let held = held.clone();
        async move {
            let _ = held.lock().unwrap().recv();
            Ok::<_, HandlerError>(())
        }
    });
    let store: std::sync::Arc<dyn onlyonce::store::Store> = std::sync::Arc::new(MemoryStore::new());
    let worker = Worker::builder(store.clone()).build(jobs).unwrap();
    let now = worker.clock().now();
    let deadline = onlyonce::service::Deadline::new(now, now + Duration::from_millis(400));
    let outcome = worker.handle(delivery("stuck", "k", "{}"), deadline).await;
    assert!(matches!(outcome.ending, Ending::Abandoned), "{outcome:?}");
    let record = store.load(&crate::kit::id("stuck", "k")).await.unwrap().unwrap();
    assert_eq!((record.status, record.rev.0), (Status::Claimed, 1));
    release.send(()).unwrap();
}

struct NoJson;

impl Serialize for NoJson {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("not today"))
    }
}

struct Panics;

impl Serialize for Panics {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("in the serializer")
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_kept_is_omitted_and_the_job_completes() {
    let kit = Kit::with([], |router, _| {
        router
            .job("large", |_: Value, _: Context| async {
                Ok::<_, HandlerError>("x".repeat(500 * 1024))
            })
            .job("no-json", |_: Value, _: Context| async { Ok::<_, HandlerError>(NoJson) })
            .job("panics", |_: Value, _: Context| async { Ok::<_, HandlerError>(Panics) })
    });
    for job in ["large", "no-json", "panics"] {
        let outcome = kit.handle(delivery(job, "k", "{}")).await;
        assert!(matches!(outcome.ending, Ending::Completed(Output::Omitted)), "{outcome:?}");
        let again = kit.handle(delivery(job, "k", "{}")).await;
        assert!(matches!(again.ending, Ending::Replayed(Output::Omitted)), "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_too_large_for_the_store_completes_without_its_output() {
    let kit = Kit::new([Fault::None, Fault::Refuse]);
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(Output::Omitted)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_fit_the_job_is_terminal_and_not_quoted() {
    let kit = Kit::with([], |router, _| {
        router.job("typed", |number: u32, _: Context| async move { Ok::<_, HandlerError>(number) })
    });
    let outcome = kit.handle(delivery("typed", "k", "\"4242\"")).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    let error = outcome.error.unwrap();
    assert!(error.contains("does not fit") && !error.contains("4242"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn any_tower_layer_wraps_the_handler_inside_the_claim() {
    let store: std::sync::Arc<dyn onlyonce::store::Store> = std::sync::Arc::new(MemoryStore::new());
    let clock = std::sync::Arc::new(onlyonce::test_util::VirtualClock::new(START));
    let worker = Worker::builder(store.clone())
        .clock(clock)
        .layer(TimeoutLayer::new(SECOND * 3))
        .build(crate::kit::jobs(&crate::kit::Runs::default()))
        .unwrap();
    let deadline = onlyonce::service::Deadline::new(START, START + SECOND * 60);
    let outcome = worker.handle(delivery("slow", "k", "{\"ms\":9000}"), deadline).await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
    // What the handler itself said still counts, through the layer.
    let outcome = worker.handle(delivery("refuse", "k", "{}"), deadline).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
}

#[tokio::test]
async fn two_jobs_of_one_name_are_refused_at_the_start() {
    let nothing = |_: Value, _: Context| async { Ok::<_, HandlerError>(()) };
    let jobs = Router::new().job("a", nothing).job("a", nothing);
    let error = Worker::builder(MemoryStore::new()).build(jobs).unwrap_err().to_string();
    assert!(error.contains("\"a\" is there twice"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn staged_rows_commit_with_the_completion_and_only_then() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let row = |sku: &str| Columns::from([("sku".to_owned(), RowValue::from(sku))]);
    let jobs = Router::new().job("reserve", move |how: String, cx: Context| async move {
        cx.stage(RowWrite::PutIfAbsent {
            table: "orders".to_owned(),
            key: Columns::from([("sku".to_owned(), RowValue::from(how.as_str()))]),
            values: Columns::new(),
        })
        .await?;
        if how == "fails" { Err(HandlerError::terminal("no")) } else { Ok(()) }
    });
    let worker = Worker::builder(store.clone()).build(jobs).unwrap();
    let run = async |key: &str, how: &str| {
        let now = worker.clock().now();
        let deadline = onlyonce::service::Deadline::new(now, now + SECOND * 60);
        worker.handle(delivery("reserve", key, &format!("\"{how}\"")), deadline).await
    };
    assert!(matches!(run("1", "cup").await.ending, Ending::Completed(_)));
    assert!(store.row("orders", &row("cup")).is_some());
    assert!(matches!(run("2", "fails").await.ending, Ending::Failed(_)));
    assert!(store.row("orders", &row("fails")).is_none());
    // Its condition does not hold: the row is there already.
    assert!(matches!(run("3", "cup").await.ending, Ending::Failed(_)));
}

/// Stages one row, after an effect.
fn stages() -> Job {
    Job::new("reserve", |_: Value, cx: Context| async move {
        cx.effect("mail").at_least_once(async || Ok::<_, HandlerError>(1)).await?;
        cx.stage(order()).await
    })
    .retry(RetryPolicy::fixed(SECOND * 10, 2))
}

fn order() -> RowWrite {
    RowWrite::PutIfAbsent { table: "orders".to_owned(), key: order_key(), values: Columns::new() }
}

fn order_key() -> Columns {
    Columns::from([("id".to_owned(), RowValue::from("7"))])
}

#[tokio::test(start_paused = true)]
async fn a_completion_that_is_refused_for_good_is_a_failure_that_keeps_what_was_done() {
    // With and without its output: what is staged is the fault.
    let refused = [Fault::None, Fault::Refuse, Fault::Refuse, Fault::None];
    // The second claim sees the record first.
    let script = [refused.as_slice(), &[Fault::None], &refused].concat();
    let kit = Kit::with(script, |router, _| router.with(stages()));
    let outcome = kit.handle(delivery("reserve", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
    assert_eq!(kit.record("reserve", "k").await.unwrap().effects.len(), 1);
    kit.wait(SECOND * 10).await;
    let outcome = kit.handle(delivery("reserve", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_staged_does_not_land_with_an_unknown_outcome() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let clock = std::sync::Arc::new(onlyonce::test_util::VirtualClock::new(START));
    let jobs = Router::new().with(stages());
    let worker = Worker::builder(store.clone()).clock(clock).build(jobs).unwrap();
    // An earlier attempt left an intent behind that this handler does not visit.
    let request = crate::kit::claim_of("reserve", "k", START);
    let Claim::Take { mut write, .. } = claim(None, &request, START) else { panic!("taken") };
    let Change::Create(record) = &mut write.change else { panic!("not a creation") };
    record.lease_until = START;
    let intent = EffectRecord {
        state: EffectState::Intent,
        generation: 0,
        first_sent: START,
        request: None,
        result: None,
    };
    record.effects.insert("charge".to_owned(), intent);
    store.commit(&write, &[]).await.unwrap();

    worker.clock().sleep_until(START + SECOND * 9).await;
    let deadline = onlyonce::service::Deadline::new(worker.clock().now(), START + SECOND * 60);
    let outcome = worker.handle(delivery("reserve", "k", "{}"), deadline).await;
    assert!(matches!(outcome.ending, Ending::Unknown(_)), "{outcome:?}");
    assert_eq!(store.row("orders", &order_key()), None);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_jobs_name_is_cut_short_wherever_it_is_shown() {
    let kit = Kit::new([]);
    let name = "é".repeat(100_000);
    assert_eq!(kit.batch(&[message("m", &name, "k", "{}")], SECOND * 60).await, [""; 0]);
    let (_, mark) = kit.queue.quarantined.lock().unwrap()[0].clone();
    assert_eq!(mark.job, Some("é".repeat(100)));
    assert!(mark.error.len() <= 1024 && mark.error.contains("no job is named"), "{}", mark.error);
}
