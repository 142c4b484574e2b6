//! Requests that land though no answer comes, and requests that never land.

use futures_util::future::join_all;
use onlyonce::protocol::Status;
use onlyonce::service::Ending;
use serde_json::{Value, json};

use crate::bench::{Bench, Case, WRITES, is_left_open};

/// It lands, and the connection breaks before the answer is through.
fn answer_lost() -> Value {
    json!({"response": {"abort_frac": 0.0}})
}

/// The connection breaks before the service has seen it.
fn request_lost() -> Value {
    json!({"request": {"cut_upload": {"after_bytes": 1}}})
}

/// Once, which the SDK's own next attempt meets; three times, which is all that it tries; and five
/// times, which the worker's second try meets.
fn each_write(fault: &Value) -> Vec<Case> {
    let times = |(job, operation)| [1, 3, 5].map(|times| Case::new(job, operation, times, fault));
    WRITES.into_iter().flat_map(times).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_landed_unanswered_counts_once() {
    Bench::new().await.all_hold(&each_write(&answer_lost())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_never_arrived_is_sent_again() {
    Bench::new().await.all_hold(&each_write(&request_lost())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_connection_is_made_anew() {
    Bench::new().await.all_hold(&each_write(&json!({"reset": true}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_lost_is_sent_again_and_knows_itself_again() {
    let bench = Bench::new().await;
    let faults = [answer_lost(), request_lost(), json!({"reset": true})];
    let cases = faults.map(|fault| Case::new("long", "UpdateItem", 2, &fault));
    bench.proxy.breaks(cases.iter().map(Case::rule).collect());
    let outcomes = cases.iter().map(|case| bench.deliver_renewing(case.job, &case.key));
    let outcomes = join_all(outcomes).await;
    for ((case, outcome), struck) in cases.iter().zip(outcomes).zip(bench.proxy.heals()) {
        assert!(struck > 0, "nothing was broken: {case:?}");
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{case:?}: {outcome:?}");
        let record = bench.record(case.job, &case.key).await.unwrap();
        assert_eq!(record.attempt, 1, "{case:?}");
        // Claimed and completed, and renewed at least as often as a lease is shorter than the job.
        assert!(record.rev.0 >= 4, "{case:?}: {:?}", record.rev);
        bench.is_done_once(case.job, &case.key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_never_answered_runs_nothing_and_is_free_after_its_lease() {
    let bench = Bench::new().await;
    let landed = Case::endless("charge", "PutItem", &answer_lost());
    let lost = Case::endless("charge", "PutItem", &request_lost());
    let cases = [landed.clone(), lost.clone()];
    for outcome in bench.deliver_broken(&cases, 4).await {
        assert!(is_left_open(&outcome), "{outcome:?}");
    }
    for case in &cases {
        assert_eq!(bench.seen.of(&case.id()).len(), 0, "nothing runs without a claim");
    }
    assert_eq!(bench.status(&landed).await, Some(Status::Claimed));
    assert_eq!(bench.status(&lost).await, None);
    assert_eq!(bench.comes_again(lost.job, &lost.key).await, ["completed"]);
    assert_eq!(bench.comes_again(landed.job, &landed.key).await, ["busy", "completed"]);
    for case in &cases {
        bench.is_done_once(case.job, &case.key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_that_is_never_answered_is_not_acknowledged() {
    let bench = Bench::new().await;
    let writes = [("charge", "UpdateItem"), ("settle", "TransactWriteItems")];
    let all = |fault| writes.map(|(job, operation)| Case::endless(job, operation, &fault));
    let (landed, lost) = (all(answer_lost()), all(request_lost()));
    for outcome in bench.deliver_broken(&[landed.clone(), lost.clone()].concat(), 4).await {
        assert!(is_left_open(&outcome), "{outcome:?}");
    }
    for case in &landed {
        assert_eq!(bench.comes_again(case.job, &case.key).await, ["replayed"]);
        bench.is_done_once(case.job, &case.key).await;
    }
    for case in &lost {
        let names = bench.comes_again(case.job, &case.key).await;
        // The first one's lease is over meanwhile, or not yet.
        assert!(matches!(names[..], ["completed"] | ["busy", "completed"]), "{names:?}");
        // Sent twice, as the first was not recorded: under one key.
        let keys = bench.seen.of(&case.id());
        assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
        assert_eq!(bench.taken(&case.key).await, i64::from(case.job == "settle"));
        assert_eq!(bench.status(case).await, Some(Status::Completed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fused_transaction_that_is_never_answered_takes_one_cup() {
    let bench = Bench::new().await;
    let faults = [(answer_lost(), "replayed"), (request_lost(), "completed")];
    let cases =
        faults.clone().map(|(fault, _)| Case::endless("reserve", "TransactWriteItems", &fault));
    for outcome in bench.deliver_broken(&cases, 4).await {
        assert!(is_left_open(&outcome), "{outcome:?}");
    }
    for (case, (_, then)) in cases.iter().zip(faults) {
        assert_eq!(bench.comes_again(case.job, &case.key).await, [then]);
        bench.is_done_once(case.job, &case.key).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_is_never_answered_runs_nothing() {
    let bench = Bench::new().await;
    let landed = Case::endless("letter", "UpdateItem", &answer_lost());
    let lost = Case::endless("letter", "UpdateItem", &request_lost());
    let cases = [landed.clone(), lost.clone()];
    for outcome in bench.deliver_broken(&cases, 4).await {
        assert!(is_left_open(&outcome), "{outcome:?}");
    }
    for case in &cases {
        assert_eq!(bench.seen.of(&case.id()).len(), 0, "nothing runs without its intent");
    }
    // Nobody can tell any more that it was not sent.
    let names = bench.comes_again(landed.job, &landed.key).await;
    assert_eq!(names.last(), Some(&"unknown"), "{names:?}");
    assert_eq!(bench.status(&landed).await, Some(Status::Unknown));
    assert_eq!(bench.seen.of(&landed.id()).len(), 0);

    let names = bench.comes_again(lost.job, &lost.key).await;
    assert_eq!(names.last(), Some(&"completed"), "{names:?}");
    bench.is_done_once(lost.job, &lost.key).await;
}
