//! Fused jobs, and what staged writes mean when they are refused: one transaction, lost by copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{Claim, ConditionalWrite, RetryPolicy, Status, claim};
use onlyonce::runtime::Clock;
use onlyonce::service::{Deadline, Delivery, Ending, Outcome, Worker};
use onlyonce::store::{Columns, MemoryStore, RowValue, RowWrite, Store};
use onlyonce::test_util::{Fault, FaultStore, SeededEntropy, VirtualClock};
use serde_json::Value;

use crate::kit::{SECOND, START, claim_of, delivery, id, pause};

/// Takes `n` cups off the shelf; what an empty shelf means is `refused`'s to say.
fn reserve(refused: fn() -> HandlerError) -> Job {
    let job = Job::new("reserve", move |n: i64, cx: Context| async move {
        pause(&cx, SECOND).await;
        cx.stage_or(take(n), refused()).await?;
        Ok::<_, HandlerError>(n)
    });
    job.retry(RetryPolicy::fixed(SECOND * 10, 3))
}

fn take(n: i64) -> RowWrite {
    let (add, floor) = ([("left".to_owned(), -n)].into(), [("left".to_owned(), 0)].into());
    RowWrite::Add { table: "stock".to_owned(), key: cups(), add, floor }
}

fn cups() -> Columns {
    Columns::from([("sku".to_owned(), RowValue::from("cup"))])
}

fn sold_out() -> HandlerError {
    HandlerError::terminal("sold out")
}

fn not_yet() -> HandlerError {
    HandlerError::retryable("not delivered yet")
}

/// The write that claims key `a`.
fn first_claim(job: &str) -> ConditionalWrite {
    match claim(None, &claim_of(job, "a", START), START) {
        Claim::Take { write, .. } => *write,
        other => panic!("{other:?}"),
    }
}

struct Shelf {
    rows: Arc<MemoryStore>,
    store: Arc<FaultStore>,
    clock: Arc<VirtualClock>,
    worker: Worker,
}

impl Shelf {
    async fn with(left: i64, job: Job, script: &[Fault]) -> Self {
        let rows = Arc::new(MemoryStore::new());
        let stocked = RowWrite::PutIfAbsent {
            table: "stock".to_owned(),
            key: cups(),
            values: BTreeMap::from([("left".to_owned(), RowValue::from(left))]),
        };
        rows.commit(&first_claim("stocktaking"), &[stocked.into()]).await.unwrap();
        let clock = Arc::new(VirtualClock::new(START));
        let store = Arc::new(FaultStore::new(rows.clone(), script.iter().copied()));
        let worker = Worker::builder(store.clone())
            .clock(clock.clone())
            .entropy(Arc::new(SeededEntropy::new(0, 0.5)))
            .build(Router::new().with(job))
            .unwrap();
        Self { rows, store, clock, worker }
    }

    async fn run(&self, key: &str, n: i64) -> Outcome {
        self.deliver(delivery("reserve", key, &n.to_string())).await
    }

    async fn deliver(&self, delivery: Delivery) -> Outcome {
        let now = self.clock.now();
        self.worker.handle(delivery, Deadline::new(now, now + SECOND * 60)).await
    }

    async fn wait(&self, seconds: u32) {
        self.clock.sleep_until(self.clock.now() + SECOND * seconds).await;
    }

    fn left(&self) -> i64 {
        match self.rows.row("stock", &cups()).unwrap().get("left") {
            Some(RowValue::Integer(left)) => *left,
            other => panic!("{other:?}"),
        }
    }

    async fn status(&self, key: &str) -> Status {
        self.rows.load(&id("reserve", key)).await.unwrap().unwrap().status
    }
}

#[tokio::test(start_paused = true)]
async fn a_fused_job_is_one_commit_and_so_is_a_duplicate() {
    let shelf = Shelf::with(10, reserve(sold_out).fused(), &[]).await;
    let first = shelf.run("a", 3).await;
    assert!(matches!(first.ending, Ending::Completed(_)), "{first:?}");
    assert_eq!((shelf.store.commits(), first.token, first.attempt), (1, Some(1), Some(1)));
    let again = shelf.run("a", 3).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
    assert_eq!((shelf.store.commits(), shelf.left()), (2, 7));
    let record = shelf.rows.load(&id("reserve", "a")).await.unwrap().unwrap();
    assert_eq!((record.status, record.rev.0), (Status::Completed, 1));
    assert!(record.expires_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn of_copies_that_run_at_once_one_counts() {
    let shelf = Shelf::with(10, reserve(sold_out).fused(), &[]).await;
    let (one, two, three) = tokio::join!(shelf.run("a", 3), shelf.run("a", 3), shelf.run("a", 3));
    for outcome in [one, two, three] {
        let ended = &outcome.ending;
        assert!(matches!(ended, Ending::Completed(_) | Ending::Replayed(_)), "{ended:?}");
    }
    assert_eq!(shelf.left(), 7);
}

#[tokio::test(start_paused = true)]
async fn another_payload_under_the_key_is_a_mismatch() {
    let shelf = Shelf::with(10, reserve(sold_out).fused(), &[]).await;
    shelf.run("a", 3).await;
    let other = shelf.run("a", 4).await;
    assert!(matches!(other.ending, Ending::Mismatch { .. }), "{other:?}");
    assert_eq!(shelf.left(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_or_request_changes_nothing() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Contend] {
        let shelf = Shelf::with(10, reserve(sold_out).fused(), &[fault]).await;
        let outcome = shelf.run("a", 3).await;
        let ended = &outcome.ending;
        assert!(
            matches!(ended, Ending::Completed(_) | Ending::Replayed(_)),
            "{fault:?}: {ended:?}"
        );
        assert_eq!(shelf.left(), 7, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_condition_means_what_the_handler_declared() {
    for job in [reserve(sold_out), reserve(sold_out).fused()] {
        let shelf = Shelf::with(2, job, &[]).await;
        let outcome = shelf.run("a", 3).await;
        assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
        assert_eq!(outcome.error.as_deref(), Some("sold out"));
        assert_eq!((shelf.left(), shelf.status("a").await), (2, Status::Failed));
    }
    for job in [reserve(not_yet), reserve(not_yet).fused()] {
        let shelf = Shelf::with(2, job, &[]).await;
        let outcome = shelf.run("a", 3).await;
        assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
        assert_eq!((shelf.left(), shelf.status("a").await), (2, Status::Released));
    }
}

#[tokio::test(start_paused = true)]
async fn a_fused_jobs_attempts_are_counted_and_spent() {
    let shelf = Shelf::with(2, reserve(not_yet).fused(), &[]).await;
    for attempt in 1..=3 {
        let outcome = shelf.run("a", 3).await;
        assert_eq!(outcome.attempt, Some(attempt));
        // Not due yet: whatever the handler says.
        let early = shelf.run("a", 3).await;
        assert!(matches!(early.ending, Ending::Later(_) | Ending::FailedBefore(_)), "{early:?}");
        shelf.wait(10).await;
    }
    assert_eq!(shelf.status("a").await, Status::Failed);

    // Sent again by a person.
    let mut again = delivery("reserve", "a", "1");
    again.enqueued_at = Some(shelf.clock.now());
    let mismatch = shelf.deliver(again).await;
    assert!(matches!(mismatch.ending, Ending::Mismatch { .. }), "{mismatch:?}");
    let mut again = delivery("reserve", "a", "3");
    again.enqueued_at = Some(shelf.clock.now());
    let reopened = shelf.deliver(again).await;
    assert!(matches!(reopened.ending, Ending::Released(_)), "{reopened:?}");
    assert_eq!(reopened.attempt, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_retried_fused_job_completes_in_one_write_too() {
    let job = Job::new("reserve", |n: i64, cx: Context| async move {
        cx.stage(take(n)).await?;
        // The first attempt is refused, as is known here from outside.
        if cx.now() < START + SECOND * 10 { Err(not_yet()) } else { Ok(n) }
    });
    let job = job.retry(RetryPolicy::fixed(SECOND * 10, 3)).fused();
    let shelf = Shelf::with(10, job, &[]).await;
    assert!(matches!(shelf.run("a", 3).await.ending, Ending::Released(_)));
    shelf.wait(10).await;
    let done = shelf.run("a", 3).await;
    assert!(matches!(done.ending, Ending::Completed(_)), "{done:?}");
    assert_eq!((done.attempt, done.token), (Some(2), Some(2)));
    let record = shelf.rows.load(&id("reserve", "a")).await.unwrap().unwrap();
    assert_eq!((record.status, record.rev.0, shelf.left()), (Status::Completed, 2, 7));
    assert_eq!((record.not_before, record.attempt), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_at_once_and_in_the_end_by_the_policy() {
    let conflicts = |n| vec![Fault::Contend; n];
    // Claimed jobs, whose claim goes through.
    for (job, first) in [(reserve(sold_out).fused(), 0), (reserve(sold_out), 1)] {
        let script = [vec![Fault::None; first], conflicts(20)].concat();
        let shelf = Shelf::with(10, job, &script).await;
        let outcome = shelf.run("a", 3).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
        assert_eq!(shelf.left(), 7);
    }
    for (job, first) in [(reserve(sold_out).fused(), 0), (reserve(sold_out), 1)] {
        let script = [vec![Fault::None; first], conflicts(64)].concat();
        let shelf = Shelf::with(10, job, &script).await;
        let started = shelf.clock.now();
        let outcome = shelf.run("a", 3).await;
        assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
        assert!(shelf.clock.now() < started + SECOND * 60);
        assert_eq!(shelf.left(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn an_effect_in_a_fused_job_fails_it_and_does_not_run() {
    let job = Job::new("reserve", |_: Value, cx: Context| async move {
        let effect = cx.effect("mail");
        effect.at_least_once(async || -> Result<(), HandlerError> { panic!("it ran") }).await
    });
    let shelf = Shelf::with(10, job.fused(), &[]).await;
    let outcome = shelf.run("a", 3).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    assert!(outcome.error.unwrap().contains("without `fused`"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_somebody_has_claimed_is_busy_and_then_taken() {
    // Claimed by a version in which the job was not fused, and which then died.
    let shelf = Shelf::with(10, reserve(sold_out).fused(), &[]).await;
    shelf.rows.commit(&first_claim("reserve"), &[]).await.unwrap();
    let busy = shelf.run("a", 3).await;
    assert!(matches!(busy.ending, Ending::Busy(_)), "{busy:?}");
    shelf.wait(20).await;
    let taken = shelf.run("a", 3).await;
    assert!(matches!(taken.ending, Ending::Completed(_)), "{taken:?}");
    assert_eq!((taken.token, shelf.left()), (Some(2), 7));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_staged_twice_fails_the_job_on_every_store() {
    let job = Job::new("reserve", |n: i64, cx: Context| async move {
        cx.stage(take(n)).await?;
        cx.stage(take(n)).await
    });
    let shelf = Shelf::with(10, job, &[]).await;
    let outcome = shelf.run("order-7", 3).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    assert!(outcome.error.unwrap().contains("stage one write that does both"));
    assert_eq!(shelf.left(), 10);
}
