//! What the service itself says: errors of its own, throttles, transactions in each other's way.

use onlyonce::protocol::Status;
use onlyonce::service::Ending;
use serde_json::{Value, json};

use crate::bench::{Bench, Case, WRITES, is_left_open};

fn answers(code: &str) -> Value {
    json!({"error": {"code": code}})
}

/// A cancelled transaction, with a reason for each of its two items.
fn cancelled(reasons: [&str; 2]) -> Value {
    let reasons = reasons.map(|code| json!({"Code": code, "Message": "injected"}));
    let code = "TransactionCanceledException";
    json!({"error": {"code": code, "fields": {"CancellationReasons": reasons}}})
}

/// More often than the SDK tries.
const OFTEN: u32 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn the_services_own_failures_are_tried_again() {
    let faults = [
        json!({"error": {"code": "InternalServerError", "status": 500}}),
        json!({"error": {"code": "ServiceUnavailable", "status": 503}}),
    ];
    let each =
        |fault: Value| WRITES.map(|(job, operation)| Case::new(job, operation, OFTEN, &fault));
    Bench::new().await.all_hold(&faults.map(each).concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_throttles_that_ends_is_sat_out() {
    let codes =
        ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"];
    let each =
        |code| WRITES.map(|(job, operation)| Case::new(job, operation, OFTEN, &answers(code)));
    Bench::new().await.all_hold(&codes.map(each).concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_that_outlasts_the_deadline_leaves_nothing_taken_for_done_or_for_new() {
    let bench = Bench::new().await;
    let throttled = answers("ProvisionedThroughputExceededException");
    let cases = WRITES.map(|(job, operation)| Case::endless(job, operation, &throttled));
    for (case, outcome) in cases.iter().zip(bench.deliver_broken(&cases, 4).await) {
        assert!(is_left_open(&outcome), "{case:?}: {outcome:?}");
    }
    for case in &cases {
        let ran = bench.seen.of(&case.id()).len();
        // What is thrown back is what the storm was over: without a claim or an intent nothing ran.
        let is_completion = matches!(
            (case.job, case.operation),
            ("charge", "UpdateItem") | ("settle", "TransactWriteItems")
        );
        assert_eq!(ran, usize::from(is_completion), "{case:?}");
        let claimed = case.operation != "PutItem" && case.job != "reserve";
        assert_eq!(bench.status(case).await, claimed.then_some(Status::Claimed), "{case:?}");
        assert_eq!(bench.taken(&case.key).await, 0);

        let names = bench.comes_again(case.job, &case.key).await;
        assert_eq!(names.last(), Some(&"completed"), "{case:?}: {names:?}");
        let keys = bench.seen.of(&case.id());
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(keys.len(), ran + usize::from(case.job != "reserve"), "{case:?}");
        let taken = i64::from(matches!(case.job, "settle" | "reserve"));
        assert_eq!(bench.taken(&case.key).await, taken, "{case:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_the_way_is_waited_for() {
    let conflict = answers("TransactionConflictException");
    let lone = [("charge", "PutItem"), ("charge", "UpdateItem"), ("letter", "UpdateItem")];
    let lone = lone.map(|(job, operation)| Case::new(job, operation, OFTEN, &conflict));
    let mixed = [
        ["TransactionConflict", "None"],
        ["None", "TransactionConflict"],
        // With my own record in other hands, what is staged says nothing yet.
        ["TransactionConflict", "ConditionalCheckFailed"],
        ["TransactionConflict", "ThrottlingError"],
    ];
    let both = |reasons| {
        ["settle", "reserve"]
            .map(|job| Case::new(job, "TransactWriteItems", 8, &cancelled(reasons)))
    };
    let cases = [lone.to_vec(), mixed.map(both).concat()].concat();
    Bench::new().await.all_hold(&cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_throttled_or_is_still_under_way_is_sent_again() {
    let faults = [
        cancelled(["ThrottlingError", "None"]),
        cancelled(["None", "ProvisionedThroughputExceeded"]),
        // A copy of it is: the SDK's own, say.
        answers("TransactionInProgressException"),
        // As good as none said.
        answers("TransactionCanceledException"),
    ];
    let both = |fault: Value| {
        ["settle", "reserve"].map(|job| Case::new(job, "TransactWriteItems", 2, &fault))
    };
    Bench::new().await.all_hold(&faults.map(both).concat()).await;
}

/// Others are in the way for all of the attempt: it says so on the record and comes again.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_the_way_for_ever_is_released_and_not_wedged() {
    let bench = Bench::new().await;
    let conflict = cancelled(["None", "TransactionConflict"]);
    let settle = Case::endless("settle", "TransactWriteItems", &conflict);
    let outcome = bench.deliver_broken(std::slice::from_ref(&settle), 4).await.remove(0);
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
    assert_eq!(bench.taken(&settle.key).await, 0);
    let names = bench.comes_again(settle.job, &settle.key).await;
    assert_eq!(names.last(), Some(&"completed"), "{names:?}");
    // Its effect was recorded with the release.
    bench.is_done_once(settle.job, &settle.key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_condition_fails_the_job_and_takes_nothing() {
    let bench = Bench::new().await;
    let refused = cancelled(["None", "ConditionalCheckFailed"]);
    let cases = ["settle", "reserve"].map(|job| Case::new(job, "TransactWriteItems", 1, &refused));
    for (case, outcome) in cases.iter().zip(bench.deliver_broken(&cases, 20).await) {
        assert!(matches!(outcome.ending, Ending::Failed(_)), "{case:?}: {outcome:?}");
        assert_eq!(bench.status(case).await, Some(Status::Failed));
        assert_eq!(bench.taken(&case.key).await, 0);
    }
}

/// Refused for good is no word on whether the key is free: nothing runs, nothing is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_forbids_is_not_one_that_knows_nothing() {
    let bench = Bench::new().await;
    let cases = ["AccessDeniedException", "ValidationException", "ResourceNotFoundException"]
        .map(|code| Case::endless("charge", "PutItem", &answers(code)));
    for (case, outcome) in cases.iter().zip(bench.deliver_broken(&cases, 4).await) {
        assert!(is_left_open(&outcome), "{case:?}: {outcome:?}");
        assert_eq!(bench.seen.of(&case.id()).len(), 0);
        assert_eq!(bench.comes_again(case.job, &case.key).await, ["completed"]);
        bench.is_done_once(case.job, &case.key).await;
    }
}
