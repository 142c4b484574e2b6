//! A test for every row of the claim table, and what must hold for any sequence of steps.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::protocol::{
    ConditionalWrite, Conflict, EffectRecord, EffectState, EpochSeconds, Failure, Output, Verdict,
    complete, fail, keep_effects, mark_quarantined, renew, resolve_conflict,
};

const SECOND: Duration = Duration::from_secs(1);
const SKEW: Duration = Duration::from_secs(5);
const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

fn request(claim: &str, now: Timestamp) -> ClaimRequest {
    let key = IdempotencyKey::new("invoice:42").unwrap();
    ClaimRequest {
        id: RecordId::new("default", "invoice", &key),
        namespace: "default".to_owned(),
        job: "invoice".to_owned(),
        key,
        fingerprint: Some(Fingerprint::of(b"payload")),
        claim_id: ClaimId::new(claim),
        lease_until: now + SECOND * 30,
        skew: SKEW,
        retry: RetryPolicy::fixed(SECOND, 3),
        retention: Retention::For(SECOND * 3600),
        enqueued_at: Some(now),
        message_id: Some("m-1".to_owned()),
    }
}

/// The record after its first claim, by `first`, at `NOW`.
fn claimed() -> Record {
    let Claim::Take { write, .. } = claim(None, &request("first", NOW), NOW) else {
        panic!("an absent record is free")
    };
    write.apply(None).unwrap()
}

fn with(change: impl FnOnce(&mut Record)) -> Option<Record> {
    let mut record = claimed();
    change(&mut record);
    Some(record)
}

fn intent() -> BTreeMap<String, EffectRecord> {
    let effect = EffectRecord {
        state: EffectState::Intent,
        generation: 0,
        first_sent: NOW,
        request: None,
        result: None,
    };
    BTreeMap::from([("charge".to_owned(), effect)])
}

/// The record that a take-over by `second` at `now` leaves, and the claim.
fn taken(record: Option<Record>, now: Timestamp) -> (Record, Held) {
    match claim(record.clone(), &request("second", now), now) {
        Claim::Take { write, held } => (write.apply(record.as_ref()).unwrap(), *held),
        other => panic!("not taken: {other:?}"),
    }
}

#[test]
fn absent_is_created_with_one_write_and_no_read() {
    let record = claimed();
    assert_eq!(
        (record.status, record.token, record.rev),
        (Status::Claimed, FencingToken(1), Rev(1))
    );
    assert_eq!((record.attempt, record.lease_until), (1, NOW + SECOND * 30));
    assert_eq!(record.key, "invoice:42");
}

#[test]
fn my_own_claim_is_held() {
    let held = claim(Some(claimed()), &request("first", NOW), NOW);
    assert!(matches!(held, Claim::Held(held) if held.rev == Rev(1)));
}

#[test]
fn expired_is_taken_over_as_if_new_but_its_token_goes_on() {
    let expired = |status: Status| {
        with(|record| {
            record.status = status;
            record.attempt = 3;
            record.fingerprint = Some(Fingerprint::of(b"another"));
            record.effects.insert(
                "mail".to_owned(),
                EffectRecord {
                    state: EffectState::Done,
                    generation: 0,
                    first_sent: NOW,
                    request: None,
                    result: None,
                },
            );
            record.output = Some(Output::Stored("1".to_owned()));
            record.expires_at = Some(EpochSeconds::at_or_after(NOW + SECOND * 100));
        })
    };
    let later = NOW + SECOND * 101;
    for status in [Status::Completed, Status::Failed, Status::Released, Status::Claimed] {
        let (record, held) = taken(expired(status), later);
        assert_eq!((record.token, record.attempt), (FencingToken(2), 1));
        assert_eq!((record.created_at, record.output.clone()), (later, None));
        assert!(held.effects.is_empty());
        assert_eq!(record.fingerprint, Some(Fingerprint::of(b"payload")));
        // Case 17: the take-over rewrites the expiry, or the key is "first seen" for ever.
        assert!(record.expires_at.is_some_and(|expiry| !expiry.is_past(later)));
    }
}

#[test]
fn unknown_and_open_intents_never_expire() {
    let past = Some(EpochSeconds::from_secs(1));
    let unknown = with(|record| {
        record.status = Status::Unknown;
        record.expires_at = past;
    });
    let decided = claim(unknown, &request("second", NOW), NOW);
    assert!(matches!(decided, Claim::Parked(_)));

    let open = with(|record| {
        record.effects = intent();
        record.expires_at = past;
    });
    let (record, held) = taken(open, NOW + SECOND * 36);
    assert_eq!((held.attempt, held.effects), (2, intent()));
    assert_eq!(record.expires_at, None);
}

#[test]
fn a_live_lease_is_not_expired_whatever_its_ttl_says() {
    let record = with(|record| record.expires_at = Some(EpochSeconds::from_secs(1)));
    let decided = claim(record, &request("second", NOW), NOW + SECOND * 34);
    assert!(matches!(decided, Claim::Busy { .. }));
}

#[test]
fn a_claims_expiry_is_never_before_its_lease_and_skew() {
    let request = ClaimRequest { retention: Retention::For(SECOND), ..request("first", NOW) };
    let Claim::Take { write, .. } = claim(None, &request, NOW) else { panic!("a free key") };
    let expires_at = write.apply(None).unwrap().expires_at;
    assert_eq!(expires_at, Some(EpochSeconds::at_or_after(NOW + SECOND * 30 + SKEW)));
}

#[test]
fn a_take_over_dates_what_a_dead_attempt_left_unrecorded_and_nothing_else() {
    let later = NOW + SECOND * 40;
    // Its last write is the latest that is known of it.
    assert_eq!(taken(Some(claimed()), later).0.unrecorded_since, Some(NOW));
    let twice = with(|record| record.unrecorded_since = Some(NOW - SECOND * 9));
    assert_eq!(taken(twice, later).0.unrecorded_since, Some(NOW - SECOND * 9));
    for status in [Status::Released, Status::Failed] {
        let settled = with(|record| record.status = status);
        assert_eq!(taken(settled, later).0.unrecorded_since, None, "{status}");
    }
}

#[test]
fn only_an_open_intent_keeps_a_taken_over_record_for_ever() {
    let later = NOW + SECOND * 40;
    assert!(taken(Some(claimed()), later).0.expires_at.is_some());
    let open = with(|record| record.effects = intent());
    assert_eq!(taken(open, later).0.expires_at, None);
}

#[test]
fn another_payload_is_a_mismatch_in_every_status_also_on_a_take_over() {
    let much_later = NOW + SECOND * 600;
    for status in
        [Status::Claimed, Status::Released, Status::Completed, Status::Failed, Status::Unknown]
    {
        let record = with(|record| {
            record.status = status;
            record.fingerprint = Some(Fingerprint::of(b"another"));
        });
        let decided = claim(record, &request("second", much_later), much_later);
        assert!(matches!(decided, Claim::Mismatch(_)), "{status}");
    }
}

#[test]
fn a_job_without_fingerprints_compares_none() {
    let mut request = request("second", NOW);
    request.fingerprint = None;
    let record = with(|record| record.status = Status::Completed);
    assert!(matches!(claim(record, &request, NOW), Claim::Replay(_)));
}

#[test]
fn completed_is_replayed() {
    let record = with(|record| record.status = Status::Completed);
    assert!(matches!(claim(record, &request("second", NOW), NOW), Claim::Replay(_)));
}

#[test]
fn unknown_is_parked_even_for_a_message_sent_later() {
    let record = with(|record| record.status = Status::Unknown);
    let much_later = NOW + SECOND * 600;
    let decided = claim(record, &request("second", much_later), much_later);
    assert!(matches!(decided, Claim::Parked(_)));
}

#[test]
fn failed_is_reopened_by_a_message_enqueued_after_the_failure() {
    let failed = with(|record| {
        record.status = Status::Failed;
        record.attempt = 3;
        record.effects = BTreeMap::from([(
            "mail".to_owned(),
            EffectRecord {
                state: EffectState::Done,
                generation: 0,
                first_sent: NOW,
                request: None,
                result: Some("1".to_owned()),
            },
        )]);
        record.quarantine = Some(Quarantine::Sent);
    });
    let kept = failed.clone().unwrap().effects;
    let redriven = NOW + SKEW + Duration::from_millis(1);
    let (record, held) = taken(failed, redriven);
    assert_eq!((record.attempt, record.token, held.effects), (1, FencingToken(2), kept));
    assert_eq!(record.quarantine, None);
}

#[test]
fn failed_stays_so_for_a_stray_copy_of_the_message_that_failed() {
    let failed = || with(|record| record.status = Status::Failed);
    let much_later = NOW + SECOND * 600;
    for enqueued_at in [Some(NOW), Some(NOW + SKEW), None] {
        let stray = ClaimRequest { enqueued_at, ..request("second", much_later) };
        assert!(matches!(claim(failed(), &stray, much_later), Claim::Parked(_)));
    }
}

#[test]
fn a_copy_is_stray_only_if_it_was_enqueued_before_the_failure_by_any_clock() {
    let failed = with(|record| record.status = Status::Failed).unwrap();
    let is_stray =
        |enqueued_at| ClaimRequest { enqueued_at, ..request("second", NOW) }.is_stray(&failed);
    assert!(is_stray(Some(NOW - SKEW - Duration::from_millis(1))));
    // Moved back from quarantine at once, or from a queue that does not say when.
    for redriven in [Some(NOW - SKEW), Some(NOW), Some(NOW + SKEW), None] {
        assert!(!is_stray(redriven), "{redriven:?}");
    }
}

#[test]
fn released_is_later_until_due_then_taken_over() {
    let due = NOW + SECOND * 10;
    let released = || {
        with(|record| {
            record.status = Status::Released;
            record.not_before = Some(due);
        })
    };
    let early = claim(released(), &request("second", NOW), due - Duration::from_millis(1));
    assert!(matches!(early, Claim::Later { retry_at, .. } if retry_at == due));
    let (record, _) = taken(released(), due);
    assert_eq!((record.attempt, record.token, record.not_before), (2, FencingToken(2), None));
}

#[test]
fn claimed_is_busy_until_lease_and_skew_are_over() {
    let ends = NOW + SECOND * 35;
    let decided = claim(Some(claimed()), &request("second", NOW), ends - Duration::from_millis(1));
    assert!(matches!(decided, Claim::Busy { retry_at, .. } if retry_at == ends));
    // Case 7: 30 s past is past; a lease in milliseconds is never read as seconds.
    let (record, _) = taken(Some(claimed()), ends);
    assert_eq!((record.attempt, record.token), (2, FencingToken(2)));
}

#[test]
fn claimed_and_over_with_the_budget_spent_is_parked_and_not_run() {
    let last = |effects: BTreeMap<_, _>| {
        with(|record| {
            record.attempt = 3;
            record.effects = effects;
        })
    };
    let over = NOW + SECOND * 35;
    for (effects, status) in [(BTreeMap::new(), Status::Failed), (intent(), Status::Unknown)] {
        let current = last(effects);
        let Claim::Spend { write, parked } = claim(current.clone(), &request("second", over), over)
        else {
            panic!("the budget is spent")
        };
        assert_eq!((parked.status, parked.quarantine), (status, Some(Quarantine::Pending)));
        assert_eq!(parked.expires_at.is_none(), status == Status::Unknown);
        assert_eq!(write.apply(current.as_ref()), Some(*parked));
    }
}

#[test]
fn a_take_over_keeps_effects_and_what_it_does_not_know() {
    let current = with(|record| {
        record.effects = intent();
        record.error = Some("before".to_owned());
    });
    let (record, held) = taken(current, NOW + SECOND * 35);
    assert_eq!(held.effects, intent());
    assert_eq!(record.error.as_deref(), Some("before"));
}

#[test]
fn a_take_over_decided_on_a_stale_snapshot_does_not_land_on_a_completion() {
    let stale = claimed();
    let held = Held::of(&stale);
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let completed = done.apply(Some(&stale)).unwrap();

    let over = NOW + SECOND * 35;
    let Claim::Take { write, .. } = claim(Some(stale), &request("second", over), over) else {
        panic!("the snapshot is free")
    };
    assert_eq!(write.apply(Some(&completed)), None);
    let again = claim(Some(completed), &request("second", over), over);
    assert!(matches!(again, Claim::Replay(_)));
}

#[test]
fn two_stealers_cannot_both_win() {
    let over = NOW + SECOND * 35;
    let stolen = |by| match claim(Some(claimed()), &request(by, over), over) {
        Claim::Take { write, .. } => write,
        other => panic!("{other:?}"),
    };
    let (one, two) = (stolen("one"), stolen("two"));
    let after = one.apply(Some(&claimed())).unwrap();
    assert_eq!(two.apply(Some(&after)), None);
}

/// One step of some worker, at some time, with or without its reply.
#[derive(Clone, Debug)]
enum Step {
    Claim { worker: usize, payload: u8 },
    Complete { worker: usize },
    Fail { worker: usize, failure: Failure },
    Renew { worker: usize },
    Effects { worker: usize },
    Quarantined { worker: usize },
    Wait { seconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..3usize;
    let failure = prop_oneof![
        Just(Failure::Retryable),
        Just(Failure::RetryAfter(SECOND * 7)),
        Just(Failure::Terminal),
        Just(Failure::Cancelled),
        Just(Failure::Unknown),
    ];
    let step = prop_oneof![
        4 => (worker.clone(), 0..5u8).prop_map(|(worker, p)| Step::Claim { worker, payload: p / 4 }),
        1 => worker.clone().prop_map(|worker| Step::Complete { worker }),
        2 => (worker.clone(), failure).prop_map(|(worker, failure)| Step::Fail { worker, failure }),
        1 => worker.clone().prop_map(|worker| Step::Renew { worker }),
        1 => worker.clone().prop_map(|worker| Step::Effects { worker }),
        1 => worker.prop_map(|worker| Step::Quarantined { worker }),
        3 => (0..40u64).prop_map(|seconds| Step::Wait { seconds }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What a worker believes it holds; it may be long out of date.
#[derive(Clone, Default)]
struct Belief(Option<Held>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn token_and_rev_never_decrease_and_completed_never_leaves(steps in steps()) {
        let mut store: Option<Record> = None;
        let mut now = NOW;
        let mut beliefs = vec![Belief::default(); 3];
        for (n, step) in steps.into_iter().enumerate() {
            let before = store.clone();
            let (worker, write, after) = match step {
                Step::Wait { seconds } => {
                    now = now + SECOND * u32::try_from(seconds).unwrap();
                    continue;
                }
                Step::Claim { worker, payload } => {
                    let mut request = request(&format!("claim-{n}"), now);
                    request.fingerprint = Some(Fingerprint::of(&[payload]));
                    // Not past its TTL: that is the one way out of completed.
                    request.retention = Retention::Forever;
                    match claim(store.clone(), &request, now) {
                        Claim::Take { write, held } => {
                            if let Some(record) = &before {
                                prop_assert_eq!(&record.fingerprint, &request.fingerprint);
                                prop_assert!(held.token > record.token);
                            }
                            (worker, *write, Some(*held))
                        }
                        Claim::Spend { write, .. } => (worker, *write, None),
                        _ => continue,
                    }
                }
                Step::Complete { worker } => {
                    let Some(held) = beliefs[worker].0.clone() else { continue };
                    let (write, verdict) = complete(&held, Output::Omitted, Retention::Forever, now);
                    prop_assert!(matches!(verdict, Verdict::Completed(_)));
                    (worker, write, None)
                }
                Step::Fail { worker, failure } => {
                    let Some(held) = beliefs[worker].0.clone() else { continue };
                    let policy = RetryPolicy::fixed(SECOND, 3);
                    let policy = (&policy, Retention::Forever);
                    let (write, _) = fail(&held, &failure, "no".to_owned(), policy, now, 0.5);
                    (worker, write, None)
                }
                Step::Renew { worker } => {
                    let Some(held) = beliefs[worker].0.clone() else { continue };
                    (worker, renew(&held, now + SECOND * 30, (Retention::default(), SECOND * 5), now), Some(held.advanced()))
                }
                Step::Effects { worker } => {
                    let Some(held) = beliefs[worker].0.clone() else { continue };
                    (worker, keep_effects(&held, now), Some(held.advanced()))
                }
                Step::Quarantined { worker } => {
                    let Some(held) = beliefs[worker].0.clone() else { continue };
                    (worker, mark_quarantined(&held), Some(held.advanced()))
                }
            };
            match write.apply(store.as_ref()) {
                Some(record) => {
                    if let Some(before) = &before {
                        prop_assert_eq!(record.rev, before.rev.next());
                        prop_assert!(record.token >= before.token);
                        prop_assert!(before.status != Status::Completed);
                    }
                    // The reply may be lost; what is there says that it landed.
                    if before.is_some() && record.claim_id == before.as_ref().unwrap().claim_id {
                        prop_assert_eq!(resolve_conflict(&write, Some(&record)), Conflict::Applied);
                    }
                    store = Some(record);
                    beliefs[worker] = Belief(after);
                }
                None => assert_foreign(&write, before.as_ref())?,
            }
        }
    }
}

/// A write that did not land was decided on a foreign claim or an old revision, and is known to be
/// lost.
fn assert_foreign(write: &ConditionalWrite, current: Option<&Record>) -> Result<(), TestCaseError> {
    let current = current.unwrap();
    if let Expect::At { claim_id, rev } = &write.expect {
        prop_assert!(*claim_id != current.claim_id || *rev < current.rev);
        prop_assert_eq!(resolve_conflict(write, Some(current)), Conflict::LostLease);
    }
    Ok(())
}
