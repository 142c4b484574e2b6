//! Settling: what each ending writes, and that nobody but the owner can.

use super::*;
use crate::protocol::{EffectState, IdempotencyKey};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const KEPT: Retention = Retention::For(Duration::from_secs(3600));

fn record() -> Record {
    let key = IdempotencyKey::new("k").unwrap();
    Record {
        id: RecordId::new("default", "job", &key),
        key: "k".to_owned(),
        job: "job".to_owned(),
        namespace: "default".to_owned(),
        status: Status::Claimed,
        claim_id: ClaimId::new("mine"),
        token: FencingToken(4),
        rev: Rev(9),
        attempt: 2,
        lease_until: NOW + SECOND * 30,
        not_before: None,
        fingerprint: None,
        unrecorded_since: None,
        effects: BTreeMap::new(),
        output: None,
        error: Some("last time".to_owned()),
        quarantine: None,
        created_at: NOW,
        updated_at: NOW,
        message_id: None,
        expires_at: None,
    }
}

fn open_intent() -> BTreeMap<String, EffectRecord> {
    let intent = EffectState::Intent;
    let effect =
        EffectRecord { state: intent, generation: 0, first_sent: NOW, request: None, result: None };
    BTreeMap::from([("charge".to_owned(), effect)])
}

fn after(write: &ConditionalWrite) -> Record {
    write.apply(Some(&record())).unwrap()
}

fn failing(held: &Held, failure: Failure) -> (Record, Verdict) {
    let policy = RetryPolicy::fixed(SECOND * 10, 3);
    let (write, verdict) = fail(held, &failure, "no".to_owned(), (&policy, KEPT), NOW, 0.5);
    (after(&write), verdict)
}

#[test]
fn completing_stores_the_output_and_starts_the_retention() {
    let output = Output::Stored("0".to_owned());
    let (write, verdict) = complete(&Held::of(&record()), output.clone(), KEPT, NOW);
    let done = after(&write);
    assert_eq!(verdict, Verdict::Completed(output.clone()));
    assert_eq!((done.status, done.output, done.error), (Status::Completed, Some(output), None));
    assert_eq!((done.rev, done.token), (Rev(10), FencingToken(4)));
    assert_eq!(done.expires_at, Some(EpochSeconds::at_or_after(NOW + SECOND * 3600)));
}

#[test]
fn passing_over_an_open_intent_is_unknown_and_never_expires() {
    let held = Held { effects: open_intent(), ..Held::of(&record()) };
    let (write, verdict) = complete(&held, Output::Omitted, KEPT, NOW);
    assert_eq!(verdict, Verdict::Unknown);
    let parked = after(&write);
    assert_eq!((parked.status, parked.expires_at), (Status::Unknown, None));
    assert_eq!(parked.quarantine, Some(Quarantine::Pending));
}

#[test]
fn failures_end_as_declared() {
    let held = Held::of(&record());
    let (released, verdict) = failing(&held, Failure::Retryable);
    assert_eq!(verdict, Verdict::Released { retry_at: NOW + SECOND * 10 });
    assert_eq!((released.status, released.not_before), (Status::Released, Some(NOW + SECOND * 10)));

    let (_, verdict) = failing(&held, Failure::RetryAfter(SECOND * 77));
    assert_eq!(verdict, Verdict::Released { retry_at: NOW + SECOND * 77 });
    let (_, verdict) = failing(&held, Failure::RetryAfter(SECOND * 999_999));
    assert_eq!(verdict, Verdict::Released { retry_at: NOW + MAX_RETRY_AFTER });

    let (failed, verdict) = failing(&held, Failure::Terminal);
    assert_eq!(verdict, Verdict::Failed);
    assert_eq!((failed.status, failed.quarantine), (Status::Failed, Some(Quarantine::Pending)));
    assert_eq!(failed.error.as_deref(), Some("no"));
    assert_eq!(failed.expires_at, KEPT.expiry(NOW, NOW));
    assert!(failed.expires_at.is_some());

    let (unknown, verdict) = failing(&held, Failure::Unknown);
    assert_eq!((unknown.status, verdict), (Status::Unknown, Verdict::Unknown));
}

#[test]
fn the_last_attempt_fails_for_good_or_as_unknown() {
    let last = Held { attempt: 3, ..Held::of(&record()) };
    assert_eq!(failing(&last, Failure::Retryable).1, Verdict::Failed);
    assert_eq!(failing(&last, Failure::Cancelled).1, Verdict::Failed);
    let open = Held { effects: open_intent(), ..last };
    assert_eq!(failing(&open, Failure::Retryable).1, Verdict::Unknown);
}

#[test]
fn a_stopped_handler_is_released_or_unknown_with_an_open_intent() {
    let held = Held::of(&record());
    assert!(matches!(failing(&held, Failure::Cancelled).1, Verdict::Released { .. }));
    let open = Held { effects: open_intent(), ..held };
    assert_eq!(failing(&open, Failure::Cancelled).1, Verdict::Unknown);
    let (released, _) = failing(&open, Failure::Retryable);
    assert_eq!((released.status, released.expires_at), (Status::Released, None));
}

#[test]
fn every_write_is_refused_on_a_foreign_claim_or_an_old_revision() {
    let held = Held::of(&record());
    let policy = RetryPolicy::default();
    let writes = [
        complete(&held, Output::Omitted, KEPT, NOW).0,
        fail(&held, &Failure::Terminal, String::new(), (&policy, KEPT), NOW, 0.0).0,
        renew(&held, NOW, (Retention::default(), Duration::ZERO), NOW),
        keep_effects(&held, NOW),
        mark_quarantined(&held),
    ];
    let foreign = Record { claim_id: ClaimId::new("theirs"), ..record() };
    let moved_on = Record { rev: Rev(11), ..record() };
    for write in writes {
        for current in [&foreign, &moved_on] {
            assert_eq!(write.apply(Some(current)), None);
            assert_eq!(resolve_conflict(&write, Some(current)), Conflict::LostLease);
        }
        // Nothing is made anew where the record is gone.
        assert_eq!(write.apply(None), None);
        assert_eq!(resolve_conflict(&write, None), Conflict::LostLease);
    }
}

#[test]
fn a_mark_leaves_the_instant_of_the_failure() {
    let (failed, _) = failing(&Held::of(&record()), Failure::Terminal);
    let marked = mark_quarantined(&Held::of(&failed)).apply(Some(&failed)).unwrap();
    assert_eq!(marked.quarantine, Some(Quarantine::Sent));
    assert_eq!((marked.updated_at, marked.rev), (failed.updated_at, failed.rev.next()));
}

#[test]
fn a_lost_reply_is_told_from_a_lost_lease_by_what_is_there() {
    let (write, _) = complete(&Held::of(&record()), Output::Omitted, KEPT, NOW);
    let landed = after(&write);
    assert_eq!(resolve_conflict(&write, Some(&landed)), Conflict::Applied);
    let other = Record { output: Some(Output::Stored("1".to_owned())), ..landed };
    assert_eq!(resolve_conflict(&write, Some(&other)), Conflict::LostLease);

    let mine = record();
    let made = ConditionalWrite {
        id: mine.id.clone(),
        expect: Expect::Absent,
        change: Change::Create(Box::new(mine.clone())),
    };
    assert!(made.already_in(&mine));
    // Whose creation it was is for the next claim to say.
    assert_eq!(resolve_conflict(&made, Some(&mine)), Conflict::LostLease);
    assert!(!made.already_in(&Record { token: FencingToken(5), ..mine }));
}
