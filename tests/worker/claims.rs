//! Claiming and settling through a worker: who may run, and who may write.

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::Job;
use onlyonce::protocol::{
    Claim, ClaimId, ClaimRequest, Fingerprint, Output, Retention, RetryPolicy, Status, claim,
};
use onlyonce::runtime::Clock;
use onlyonce::service::Ending;
use onlyonce::store::Store;
use onlyonce::test_util::Fault;
use serde_json::Value;
use std::sync::Arc;

use crate::kit::{Kit, SECOND, START, delivery, id, message};

/// Claims the key as another worker would, and leaves it so: that worker has died.
pub async fn claimed_by_a_dead_worker(kit: &Kit, job: &str, key: &str, body: &str) {
    let now = kit.clock.now();
    let request = other_workers_request(job, key, body, now);
    let Claim::Take { write, .. } = claim(None, &request, now) else { panic!("the key is free") };
    kit.store.commit(&write, &[]).await.unwrap();
}

fn other_workers_request(
    job: &str,
    key: &str,
    body: &str,
    now: onlyonce::protocol::Timestamp,
) -> ClaimRequest {
    ClaimRequest {
        id: id(job, key),
        namespace: "default".to_owned(),
        job: job.to_owned(),
        key: delivery(job, key, body).key,
        fingerprint: Some(Fingerprint::of(body.as_bytes())),
        claim_id: ClaimId::new("another worker"),
        lease_until: now + SECOND * 30,
        skew: SECOND * 5,
        retry: RetryPolicy::default(),
        retention: Retention::default(),
        enqueued_at: Some(now),
        message_id: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_message_costs_two_writes_and_a_duplicate_one() {
    let kit = Kit::new([]);
    let first = kit.handle(delivery("echo", "k", "{\"a\":1}")).await;
    assert!(matches!(first.ending, Ending::Completed(_)), "{first:?}");
    assert_eq!(kit.store.commits(), 2);
    let again = kit.handle(delivery("echo", "k", "{\"a\":1}")).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
    assert_eq!((kit.store.commits(), kit.runs.count()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_duplicate_leaves_the_holders_record_untouched() {
    let kit = Kit::new([]);
    claimed_by_a_dead_worker(&kit, "echo", "k", "{}").await;
    let before = kit.record("echo", "k").await;
    let busy = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(busy.ending, Ending::Busy(_)), "{busy:?}");
    assert_eq!(kit.record("echo", "k").await, before);
    assert_eq!(kit.runs.count(), 0);
}

/// A job whose claim is taken over by another worker while it runs.
pub fn overtaken(kit_store: Arc<dyn Store>, answer: Result<(), &'static str>) -> Job {
    Job::new("overtaken", move |_: Value, cx: Context| {
        let store = kit_store.clone();
        async move {
            let record = store.load(cx.id()).await?;
            // By that worker's clock the lease is over.
            let later = cx.now() + SECOND * 600;
            let request = other_workers_request("overtaken", "k", "{}", later);
            let Claim::Take { write, .. } = claim(record, &request, later) else {
                panic!("the lease is over")
            };
            store.commit(&write, &[]).await?;
            answer.map_err(HandlerError::terminal)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_late_owner_can_neither_complete_nor_fail_nor_release() {
    for answer in [Ok(()), Err("no")] {
        let memory: Arc<dyn Store> = Arc::new(onlyonce::store::MemoryStore::new());
        let store = memory.clone();
        let worker = onlyonce::service::Worker::builder(memory)
            .build(onlyonce::handler::Router::new().with(overtaken(store.clone(), answer)))
            .unwrap();
        let now = worker.clock().now();
        let deadline = onlyonce::service::Deadline::new(now, now + SECOND * 60);
        let late = worker.handle(delivery("overtaken", "k", "{}"), deadline).await;
        assert!(matches!(late.ending, Ending::LostLease), "{late:?}");
        let record = store.load(&id("overtaken", "k")).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Claimed);
        assert_eq!(record.claim_id, ClaimId::new("another worker"));
        assert_eq!((record.token.0, record.output, record.error), (2, None, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_is_held_and_runs_once_without_waiting() {
    let kit = Kit::new([Fault::LoseReply]);
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!(kit.runs.count(), 1);
    assert!(kit.clock.now().since(START) < SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_reply_was_lost_counts_as_done() {
    let kit = Kit::new([Fault::None, Fault::LoseReply]);
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!(kit.record("echo", "k").await.unwrap().rev.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_sent_again() {
    let kit = Kit::new([Fault::LoseRequest, Fault::None, Fault::LoseRequest]);
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!((kit.runs.count(), kit.store.commits()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn without_time_nothing_is_claimed() {
    let kit = Kit::new([]);
    for hard in [onlyonce::protocol::Timestamp::from_millis(0), START] {
        let deadline = onlyonce::service::Deadline::new(START, hard);
        let outcome = kit.worker.handle(delivery("echo", "k", "{}"), deadline).await;
        assert!(matches!(outcome.ending, Ending::NotStarted), "{outcome:?}");
    }
    assert_eq!((kit.store.commits(), kit.record("echo", "k").await), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_crashed_claim_is_free_after_its_lease_long_before_its_retention() {
    let kit = Kit::new([]);
    claimed_by_a_dead_worker(&kit, "echo", "k", "{}").await;
    kit.wait(SECOND * 35).await;
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!((outcome.attempt, outcome.token), (Some(2), Some(2)));
}

#[tokio::test(start_paused = true)]
async fn in_progress_is_not_done() {
    let kit = Kit::new([]);
    claimed_by_a_dead_worker(&kit, "echo", "k", "{}").await;
    let message = crate::kit::message("m", "echo", "k", "{}");
    assert_eq!(kit.batch(&[message], SECOND * 60).await, ["m"]);
    assert_eq!(kit.queue.delay_of("m"), Some(35), "worth trying when the lease and skew are over");
}

#[tokio::test(start_paused = true)]
async fn a_redelivery_while_the_job_runs_is_busy_and_never_completes() {
    let kit = Kit::new([]);
    let body = "{\"ms\":20000}";
    let (first, second) = tokio::join!(kit.handle(delivery("slow", "k", body)), async {
        kit.wait(SECOND * 5).await;
        kit.handle(delivery("slow", "k", body)).await
    });
    assert!(matches!(first.ending, Ending::Completed(_)), "{first:?}");
    assert!(matches!(second.ending, Ending::Busy(at) if at == START + SECOND * 65), "{second:?}");
    let record = kit.record("slow", "k").await.unwrap();
    assert_eq!((record.token.0, record.rev.0, kit.runs.count()), (1, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_error_is_never_taken_as_not_processed_yet() {
    let kit = Kit::new([Fault::LoseRequest; 4]);
    let outcome = kit.handle(delivery("echo", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::StoreError), "{outcome:?}");
    assert_eq!((kit.runs.count(), kit.store.commits()), (0, 4));

    let kit = Kit::new([Fault::Refuse]);
    let message = crate::kit::message("m", "echo", "k", "{}");
    assert_eq!(kit.batch(&[message], SECOND * 60).await, ["m"]);
    assert_eq!(kit.runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_given_up_before_the_deadline() {
    let kit = Kit::new([Fault::Hang]);
    let outcome = kit.handle_within(delivery("echo", "k", "{}"), SECOND * 20).await;
    assert!(matches!(outcome.ending, Ending::StoreError), "{outcome:?}");
    assert!(kit.clock.now() <= START + SECOND * 18);

    let kit = Kit::new([Fault::None, Fault::Hang]);
    let outcome = kit.handle_within(delivery("echo", "k", "{}"), SECOND * 20).await;
    assert!(matches!(outcome.ending, Ending::StoreError), "{outcome:?}");
    assert!(kit.clock.now() <= START + SECOND * 19);
}

#[tokio::test(start_paused = true)]
async fn falsy_answers_replay_as_they_were() {
    let kit = Kit::new([]);
    for json in ["0", "false", "\"\"", "[]", "null"] {
        let answer = Output::Stored(json.to_owned());
        let first = kit.handle(delivery("echo", json, json)).await;
        assert!(matches!(&first.ending, Ending::Completed(it) if *it == answer), "{first:?}");
        let again = kit.handle(delivery("echo", json, json)).await;
        assert!(matches!(&again.ending, Ending::Replayed(it) if *it == answer), "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_order_of_keys_is_the_same_payload() {
    let kit = Kit::new([]);
    kit.handle(delivery("echo", "k", "{\"a\":1,\"b\":{\"c\":2,\"d\":3}}")).await;
    let again = kit.handle(delivery("echo", "k", "{\"b\":{\"d\":3,\"c\":2}, \"a\":1}")).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_with_another_amount_never_runs_also_on_a_take_over() {
    let kit = Kit::new([]);
    kit.handle(delivery("echo", "done", "{\"amount\":5}")).await;
    claimed_by_a_dead_worker(&kit, "echo", "dead", "{\"amount\":5}").await;
    kit.wait(SECOND * 600).await;
    for key in ["done", "dead"] {
        let before = kit.record("echo", key).await;
        let outcome = kit.handle(delivery("echo", key, "{\"amount\":500}")).await;
        assert!(matches!(outcome.ending, Ending::Mismatch { .. }), "{outcome:?}");
        assert_eq!(kit.record("echo", key).await, before);
    }
    // It is not gone without a word.
    let other = message("other", "echo", "done", "{\"amount\":500}");
    assert_eq!(kit.batch(&[other], SECOND * 60).await, [""; 0]);
    assert_eq!(kit.queue.causes(), [("other".to_owned(), "mismatch".to_owned())]);
    assert_eq!(kit.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_jobs_with_one_key_both_run() {
    let kit = Kit::new([]);
    for job in ["echo", "slow"] {
        let outcome = kit.handle(delivery(job, "k", "{\"ms\":1}")).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    }
    assert_eq!(kit.runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_namespaces_with_one_key_both_run() {
    let store: Arc<dyn Store> = Arc::new(onlyonce::store::MemoryStore::new());
    for namespace in ["eu", "us"] {
        let worker = onlyonce::service::Worker::builder(store.clone())
            .namespace(namespace)
            .build(crate::kit::jobs(&crate::kit::Runs::default()))
            .unwrap();
        let now = worker.clock().now();
        let deadline = onlyonce::service::Deadline::new(now, now + SECOND * 60);
        let outcome = worker.handle(delivery("echo", "k", "{}"), deadline).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    }
}
