//! Each invariant, broken on purpose in what was put down, is named; and no other.

use std::time::Duration;

use super::*;
use crate::drill::{DrillKey, JOB, Kept, NAMESPACE, Point, Write};
use crate::ops::drill::evidence::Evidence;
use crate::ops::drill::report::{About, Report};
use crate::protocol::{
    Claim, ClaimRequest, IdempotencyKey, Record, RecordId, Retention, RetryPolicy, Timestamp, claim,
};
use crate::runtime::{Entropy, OsEntropy};

const SKEW: u64 = 5_000;

/// A record in this status.
fn record(key: &DrillKey, status: Status, token: u64) -> Record {
    let idempotency_key = IdempotencyKey::new(key.to_string()).unwrap();
    let request = ClaimRequest {
        id: RecordId::new(NAMESPACE, JOB, &idempotency_key),
        namespace: NAMESPACE.to_owned(),
        job: JOB.to_owned(),
        key: idempotency_key,
        fingerprint: None,
        claim_id: OsEntropy.claim_id(),
        lease_until: Timestamp::from_millis(3_000),
        skew: Duration::from_millis(SKEW),
        retry: RetryPolicy::none(),
        retention: Retention::Forever,
        enqueued_at: None,
        message_id: None,
    };
    let Claim::Take { write, .. } = claim(None, &request, Timestamp::from_millis(0)) else {
        panic!("a free key is claimed")
    };
    let mut record = write.apply(None).unwrap();
    record.status = status;
    record.token.0 = token;
    record
}

fn row(at: u64, worker: &str, event: Event) -> Row {
    Row { at, worker: worker.to_owned(), event }
}

fn claimed(at: u64, token: u64) -> Row {
    let event = Event::Claimed { token, attempt: 1, lease_until: at + 3_000 };
    row(at, &format!("w{token}"), event)
}

fn called(at: u64, token: u64, key: &str, request: &str) -> Row {
    let event = Event::Called { token, key: key.to_owned(), request: request.to_owned() };
    row(at, &format!("w{token}"), event)
}

fn settled(at: u64, token: u64, status: Status) -> Row {
    row(at, &format!("w{token}"), Event::Settled { token, status: status.to_string() })
}

/// A key with which all went as it should.
fn fine(scenario: Scenario) -> KeyEvidence {
    let key = DrillKey { run: "r".to_owned(), scenario, n: 0 };
    let is_keyed = scenario.effect() == Effect::Keyed;
    let rows = vec![
        claimed(10, 1),
        called(20, 1, "k", "1"),
        row(25, "w1", Event::Answered { token: 1, is_first: true }),
        settled(30, 1, Status::Completed),
    ];
    let kept =
        Kept { rows, accepted: usize::from(is_keyed), staged: u64::from(!scenario.is_brief()) };
    KeyEvidence {
        sent: vec![(1, Sent::First)],
        record: Some(record(&key, Status::Completed, 1)),
        letters: Vec::new(),
        key,
        kept,
    }
}

/// The names of what these keys break, with so many messages left in the queue.
fn broken_with(keys: Vec<KeyEvidence>, left: usize) -> Vec<&'static str> {
    let evidence = Evidence { keys, left, margin_ms: SKEW, has_pollers: true };
    judge(&evidence).into_iter().filter(|it| !it.holds).map(|it| it.name).collect()
}

fn broken(key: KeyEvidence) -> Vec<&'static str> {
    broken_with(vec![key], 0)
}

/// A key with which all went well, but for this.
fn but(scenario: Scenario, change: impl FnOnce(&mut KeyEvidence)) -> Vec<&'static str> {
    let mut key = fine(scenario);
    change(&mut key);
    broken(key)
}

#[test]
fn nothing_is_broken_where_all_went_well() {
    for scenario in [Scenario::Probe, Scenario::TwiceAtOnce, Scenario::AtMostOnce, Scenario::Load] {
        assert!(broken(fine(scenario)).is_empty(), "{scenario}");
    }
    let mut dead = fine(Scenario::KilledAtMostOnce);
    dead.kept.rows = vec![
        claimed(10, 1),
        called(20, 1, "none", "1"),
        row(21, "w1", Event::Crash { point: Point::InEffect }),
        claimed(8_010, 2),
        settled(8_020, 2, Status::Unknown),
    ];
    dead.kept.staged = 0;
    dead.record = Some(record(&dead.key, Status::Unknown, 2));
    dead.letters = vec!["unknown".to_owned()];
    assert!(broken(dead).is_empty());
}

#[test]
fn a_staged_write_done_twice_never_or_with_a_failure_is_named() {
    for times in [0, 2] {
        assert_eq!(but(Scenario::CopiesLater, |key| key.kept.staged = times), ["staged once"]);
    }
    let with_a_failure = but(Scenario::CopiesLater, |key| {
        key.record = Some(record(&key.key, Status::Failed, 1));
        key.kept.rows.pop();
        key.kept.rows.push(settled(30, 1, Status::Failed));
        key.letters = vec!["failed".to_owned()];
    });
    assert_eq!(with_a_failure, ["staged once", "no wedge"]);
}

#[test]
fn a_keyed_effect_that_is_done_twice_or_never_is_named() {
    assert_eq!(but(Scenario::CopiesLater, |key| key.kept.accepted = 2), ["keyed once"]);
    assert_eq!(but(Scenario::CopiesLater, |key| key.kept.accepted = 0), ["keyed once"]);
    let another = called(22, 1, "k2", "1");
    let another = |key: &mut KeyEvidence| key.kept.rows.insert(2, another);
    assert_eq!(but(Scenario::CopiesLater, another), ["keyed once"]);
}

#[test]
fn a_second_call_of_an_at_most_once_effect_is_named() {
    let again = |key: &mut KeyEvidence| key.kept.rows.insert(2, called(22, 1, "none", "1"));
    assert_eq!(but(Scenario::AtMostOnce, again), ["at most once"]);
    let never = |key: &mut KeyEvidence| drop(key.kept.rows.remove(1));
    assert_eq!(but(Scenario::AtMostOnce, never), ["at most once"]);
}

#[test]
fn a_message_that_is_gone_is_named_and_one_that_waits_is_a_wedge() {
    let stuck = || {
        let mut key = fine(Scenario::TwiceAtOnce);
        key.kept = Kept { rows: vec![claimed(10, 1)], accepted: 0, staged: 0 };
        key.record = Some(record(&key.key, Status::Claimed, 1));
        key
    };
    assert_eq!(broken_with(vec![stuck()], 0), ["no loss"]);
    assert_eq!(broken_with(vec![stuck()], 1), ["no wedge"]);
    let never_seen = || KeyEvidence { record: None, ..stuck() };
    assert_eq!(broken_with(vec![never_seen()], 0), ["no loss"]);
    let not_in_the_dlq = but(Scenario::TwiceAtOnce, |key| {
        *key = stuck();
        key.record = Some(record(&key.key, Status::Failed, 1));
    });
    assert_eq!(not_in_the_dlq, ["no loss"]);
}

#[test]
fn a_late_write_that_lands_and_a_second_completion_are_named() {
    let late = but(Scenario::CopiesLater, |key| {
        let done = key.kept.rows.pop().unwrap();
        key.kept.rows.extend([claimed(8_010, 2), settled(8_020, 1, Status::Released)]);
        key.kept.rows.push(settled(8_030, 2, Status::Completed));
        key.record = Some(record(&key.key, Status::Completed, 2));
        drop(done);
    });
    assert_eq!(late, ["fenced"]);
    let twice = |key: &mut KeyEvidence| key.kept.rows.push(settled(31, 1, Status::Completed));
    assert_eq!(but(Scenario::CopiesLater, twice), ["fenced"]);
    let backwards = but(Scenario::CopiesLater, |key| {
        key.kept.rows.insert(0, claimed(1, 4));
        key.kept.rows.insert(1, settled(2, 4, Status::Released));
        key.record = Some(record(&key.key, Status::Completed, 4));
    });
    assert_eq!(backwards, ["fenced"]);
    let older = |key: &mut KeyEvidence| key.record = Some(record(&key.key, Status::Completed, 0));
    assert_eq!(but(Scenario::CopiesLater, older), ["fenced"]);
}

#[test]
fn what_runs_under_a_key_that_is_done_is_named() {
    let again = but(Scenario::CopiesLater, |key| {
        key.kept.rows.push(claimed(9_000, 2));
        key.record = Some(record(&key.key, Status::Completed, 2));
    });
    assert_eq!(again, ["completed stays"]);
    let undone = |key: &mut KeyEvidence| {
        key.record = Some(record(&key.key, Status::Released, 1));
        key.kept.staged = 0;
    };
    assert_eq!(but(Scenario::CopiesLater, undone), ["no loss", "completed stays"]);
}

#[test]
fn another_payload_that_runs_or_is_not_quarantined_is_named() {
    let other = |key: &mut KeyEvidence| {
        key.sent.push((40, Sent::Other));
        key.letters.push("mismatch".to_owned());
    };
    assert!(but(Scenario::Mismatch, other).is_empty());
    let gone = |key: &mut KeyEvidence| key.sent.push((40, Sent::Other));
    assert_eq!(but(Scenario::Mismatch, gone), ["first payload only"]);
    let taken_for_another = |key: &mut KeyEvidence| key.letters.push("mismatch".to_owned());
    assert_eq!(but(Scenario::CopiesLater, taken_for_another), ["first payload only"]);
    let has_run = but(Scenario::Mismatch, |key| {
        other(key);
        key.kept.rows[1] = called(20, 1, "k", "2");
    });
    assert_eq!(has_run, ["first payload only"]);
}

#[test]
fn a_take_over_that_comes_too_soon_is_named() {
    let taken_over = |at| {
        but(Scenario::KilledAfterClaim, |key| {
            key.kept.rows.truncate(1);
            key.kept.rows.push(row(11, "w1", Event::Crash { point: Point::AfterClaim }));
            key.kept.rows.extend([claimed(at, 2), called(at + 1, 2, "k", "1")]);
            key.kept.rows.push(settled(at + 2, 2, Status::Completed));
            key.record = Some(record(&key.key, Status::Completed, 2));
        })
    };
    assert_eq!(taken_over(8_009), ["one at a time"]);
    assert!(taken_over(8_010).is_empty());
    let renewed = but(Scenario::LongJob, |key| {
        let renewed = Event::Renewed { token: 1, lease_until: 20_000 };
        key.kept.rows.insert(1, row(12, "w1", renewed));
        key.kept.rows.truncate(2);
        key.kept.rows.extend([claimed(12_000, 2), called(12_001, 2, "k", "1")]);
        key.kept.rows.push(settled(12_002, 2, Status::Completed));
        key.record = Some(record(&key.key, Status::Completed, 2));
    });
    assert_eq!(renewed, ["one at a time"]);
    let brief = |key: &mut KeyEvidence| key.kept.rows.push(called(40, 2, "k", "1"));
    assert_eq!(but(Scenario::Load, brief), ["one at a time"]);
}

#[test]
fn a_worker_that_does_not_know_its_own_write_is_named() {
    let lost = row(11, "w1", Event::AnswerLost { to: Write::Claim });
    let again = |key: &mut KeyEvidence| {
        key.kept.rows = vec![claimed(10, 1), lost, claimed(8_010, 2), called(8_011, 2, "k", "1")];
        key.kept.rows.push(settled(8_012, 2, Status::Completed));
        key.record = Some(record(&key.key, Status::Completed, 2));
    };
    let mut key = fine(Scenario::LostClaim);
    again(&mut key);
    assert_eq!(broken(key.clone()), ["own writes known"]);
    // Its worker died meanwhile, for another key's sake.
    let mut dead = fine(Scenario::KilledAfterClaim);
    dead.kept.rows.push(row(500, "w1", Event::Crash { point: Point::AfterClaim }));
    assert!(broken_with(vec![key, dead], 0).is_empty());
}

#[test]
fn an_at_most_once_effect_is_unknown_where_its_worker_died_and_not_otherwise() {
    let mut key = fine(Scenario::AtMostOnce);
    key.kept.rows = vec![
        claimed(10, 1),
        called(20, 1, "none", "1"),
        claimed(8_010, 2),
        settled(8_020, 2, Status::Unknown),
    ];
    key.kept.staged = 0;
    key.record = Some(record(&key.key, Status::Unknown, 2));
    key.letters = vec!["unknown".to_owned()];
    assert_eq!(broken(key.clone()), ["no wedge"]);
    let mut dead = fine(Scenario::KilledAfterClaim);
    dead.kept.rows.push(row(500, "w1", Event::Crash { point: Point::AfterClaim }));
    assert!(broken_with(vec![key, dead], 0).is_empty());
}

#[test]
fn what_was_not_played_is_named() {
    for scenario in [
        Scenario::KilledAfterClaim,
        Scenario::KilledInEffect,
        Scenario::KilledAfterEffect,
        Scenario::KilledAfterCommit,
        Scenario::LostClaim,
        Scenario::LostCompletion,
        Scenario::LateWorker,
        Scenario::LongJob,
        Scenario::Redrive,
    ] {
        assert_eq!(broken(fine(scenario)), ["played"], "{scenario}");
    }
    let copy = |key: &mut KeyEvidence| key.sent.push((2, Sent::Copy));
    assert_eq!(but(Scenario::TwiceAtOnce, copy), ["played"]);
}

#[test]
fn each_broken_key_is_told_its_fault_and_the_list_of_all_is_short() {
    let twice = |n| {
        let mut key = fine(Scenario::TwiceAtOnce);
        key.key.n = n;
        key.kept.staged = 2;
        key
    };
    let keys = (0..12).map(twice).collect();
    let evidence = Evidence { keys, left: 0, margin_ms: SKEW, has_pollers: true };
    let about = About {
        run: "r".to_owned(),
        place: "here".to_owned(),
        began: Timestamp::from_millis(0),
        ended: Timestamp::from_millis(1_000),
        workers_died: None,
        load: None,
    };
    let report = Report::of(&evidence, about);
    assert_eq!(report.keys.len(), 12);
    for key in &report.keys {
        assert_eq!(key.faults, ["staged once: completed, and done 2 times"], "{}", key.key);
    }
    let text = report.to_string();
    assert!(text.contains("twice-at-once/4: ") && !text.contains("twice-at-once/5: "), "{text}");
    assert!(text.contains("and 7 more"), "{text}");
    let document = serde_json::to_value(&report).unwrap();
    let staged = &document["invariants"][0];
    assert_eq!((&staged["broken"], staged["faults"].as_array().unwrap().len()), (&12.into(), 5));
    assert_eq!(staged["faults"][0], "twice-at-once/0: completed, and done 2 times");
}
