//! Answers that come after the SDK has given up, and requests that land then.

use std::time::{Duration, Instant};

use onlyonce::protocol::Status;
use serde_json::json;

use crate::bench::{Bench, Case, WRITES, is_left_open};

/// The SDK waits two seconds for each of its attempts.
const TOO_LATE: u32 = 2500;

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_lands_behind_its_own_successor_changes_nothing() {
    let bench = Bench::new().await;
    let before = bench.proxy.answered();
    let late = json!({"latency": TOO_LATE});
    let cases = WRITES.map(|(job, operation)| Case::new(job, operation, 1, &late));
    bench.all_hold(&cases).await;

    // Until the late ones have landed: of each case all its writes, the late one besides, and the
    // one that has found it done.
    let writes = |job: &str| if job == "reserve" { 1 } else { 2 + u64::from(job == "letter") };
    let all: u64 = cases.iter().map(|case| writes(case.job) + 2).sum();
    let begun = Instant::now();
    while bench.proxy.answered() < before + all {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", bench.proxy.answered());
        tokio::task::yield_now().await;
    }
    for case in &cases {
        bench.is_done_once(case.job, &case.key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_answers_too_late_each_time_is_given_up_in_time() {
    let bench = Bench::new().await;
    let late = json!({"latency": TOO_LATE});
    let cases = WRITES.map(|(job, operation)| Case::endless(job, operation, &late));
    for (case, outcome) in cases.iter().zip(bench.deliver_broken(&cases, 6).await) {
        assert!(is_left_open(&outcome), "{case:?}: {outcome:?}");
    }
    for case in &cases {
        let ran = bench.seen.of(&case.id()).len();
        let names = bench.comes_again(case.job, &case.key).await;
        let (end, keys) = (names[names.len() - 1], bench.seen.of(&case.id()));
        if case.job == "letter" {
            // Its intent may have landed unheard, and then nobody can tell that it was not sent.
            assert!(matches!(end, "completed" | "unknown"), "{names:?}");
            assert_eq!(keys.len(), usize::from(end == "completed"), "{names:?}");
            continue;
        }
        // What landed unheard is known for what it is.
        assert!(matches!(end, "completed" | "replayed"), "{case:?}: {names:?}");
        assert_eq!(bench.status(case).await, Some(Status::Completed));
        assert!(keys.len() <= ran + 1 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        let taken = i64::from(matches!(case.job, "settle" | "reserve"));
        assert_eq!(bench.taken(&case.key).await, taken, "{case:?}");
    }
}

/// It lands at once, and its answer trickles in for longer than the SDK waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_landed_and_whose_answer_stalls_counts_once() {
    let trickle = json!({"response": {"bandwidth_kbps": 0.0001}});
    let cases = WRITES.map(|(job, operation)| Case::new(job, operation, 1, &trickle));
    Bench::new().await.all_hold(&cases).await;
}

/// It takes the request and says nothing: the invocation's own deadline ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_never_answers_is_given_up_in_time() {
    let bench = Bench::new().await;
    let silent = json!({"timeout_ms": 60_000});
    let cases = WRITES.map(|(job, operation)| Case::endless(job, operation, &silent));
    for (case, outcome) in cases.iter().zip(bench.deliver_broken(&cases, 4).await) {
        assert!(is_left_open(&outcome), "{case:?}: {outcome:?}");
    }
    for case in &cases {
        let names = bench.comes_again(case.job, &case.key).await;
        assert_eq!(names.last(), Some(&"completed"), "{case:?}: {names:?}");
    }
}
