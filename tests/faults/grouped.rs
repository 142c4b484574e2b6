//! Requests that many records share, broken on the wire: what is lost is lost for each, and nothing is
//! done twice.

use futures_util::future::join_all;
use onlyonce::service::{Ending, Outcome};
use serde_json::{Value, json};

use crate::bench::{Bench, is_left_open};

const BATCH: &str = "BatchExecuteStatement";
/// The jobs whose claims, intents and completions share requests; the completion of `settle` is a
/// transaction.
const JOBS: [&str; 3] = ["charge", "letter", "settle"];
const EACH: usize = 4;

fn keys(name: &str) -> Vec<(&'static str, String)> {
    let keys = |job| (0..EACH).map(move |n| (job, format!("{job} {name} {n}")));
    JOBS.into_iter().flat_map(keys).collect()
}

/// Breaks so many requests of these operations, of any record, and delivers all together. The fault
/// must have struck batches.
async fn delivered(
    bench: &Bench,
    messages: &[(&'static str, String)],
    operations: &[&str],
    (fault, times): (&Value, Option<u32>),
    seconds: u64,
) -> Vec<Outcome> {
    let rule = |operation: &&str| {
        let mut rule = json!({"service": "dynamodb", "operation": operation});
        let fields = rule.as_object_mut().unwrap();
        fields.extend(fault.as_object().unwrap().clone());
        fields.extend(times.map(|times| ("times".to_owned(), json!(times))));
        rule
    };
    bench.proxy.breaks(operations.iter().map(rule).collect());
    let all = messages.iter().map(|(job, key)| bench.deliver(job, key, seconds));
    let outcomes = join_all(all).await;
    let struck = bench.proxy.heals();
    assert!(struck[0] > 0, "nothing was broken: {fault}");
    outcomes
}

/// All are done at their first delivery, each once, though batches were broken.
async fn all_hold(fault: Value) {
    let bench = Bench::grouped().await;
    for times in [1, 3, 5] {
        let messages = keys(&times.to_string());
        let outcomes = delivered(&bench, &messages, &[BATCH], (&fault, Some(times)), 20).await;
        for ((job, key), outcome) in messages.iter().zip(outcomes) {
            let is_done = matches!(outcome.ending, Ending::Completed(_) | Ending::Replayed(_));
            assert!(is_done, "{fault} {times} times, {key}: {outcome:?}");
            bench.is_done_once(job, key).await;
            assert_eq!(bench.comes_again(job, key).await, ["replayed"], "{key}");
            bench.is_done_once(job, key).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_landed_unanswered_counts_once_for_each() {
    all_hold(json!({"response": {"abort_frac": 0.0}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_never_arrived_is_sent_again() {
    all_hold(json!({"request": {"cut_upload": {"after_bytes": 1}}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_connection_was_reset_is_sent_anew() {
    all_hold(json!({"reset": true})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_failed_as_a_whole_is_tried_again() {
    all_hold(json!({"error": {"code": "InternalServerError", "status": 500}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_was_throttled_as_a_whole_is_tried_again() {
    all_hold(json!({"error": {"code": "ProvisionedThroughputExceededException"}})).await;
}

/// It lands behind its own successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_lands_too_late_changes_nothing() {
    let bench = Bench::grouped().await;
    let (messages, late) = (keys("late"), json!({"latency": 2500}));
    for outcome in delivered(&bench, &messages, &[BATCH], (&late, Some(1)), 20).await {
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    }
    for (job, key) in &messages {
        bench.is_done_once(job, key).await;
        assert_eq!(bench.comes_again(job, key).await, ["replayed"], "{key}");
    }
}

/// Nobody's answer comes, however often: nothing is acknowledged, nothing runs without its claim, and
/// everything is in time.
#[tokio::test(flavor = "multi_thread")]
async fn batches_that_are_never_answered_leave_all_of_them_open() {
    let bench = Bench::grouped().await;
    for (name, fault) in [
        ("landed", json!({"response": {"abort_frac": 0.0}})),
        ("lost", json!({"request": {"cut_upload": {"after_bytes": 1}}})),
        ("silent", json!({"timeout_ms": 60_000})),
    ] {
        let messages = keys(name);
        // Sent again at times of their own, some are alone.
        let operations = [BATCH, "PutItem"];
        let outcomes = delivered(&bench, &messages, &operations, (&fault, None), 4).await;
        for ((job, key), outcome) in messages.iter().zip(outcomes) {
            assert!(is_left_open(&outcome), "{name}, {key}: {outcome:?}");
            assert_eq!(bench.seen.of(&crate::bench::id(job, key)).len(), 0, "{name}, {key}");
            let names = bench.comes_again(job, key).await;
            assert_eq!(names.last(), Some(&"completed"), "{name}, {key}: {names:?}");
            bench.is_done_once(job, key).await;
        }
    }
}
