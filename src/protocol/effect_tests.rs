//! Every class against everything that may be remembered.

use std::collections::BTreeMap;

use super::*;
use crate::protocol::{ClaimId, FencingToken, IdempotencyKey, RecordId, Rev};

const START: Timestamp = Timestamp::from_millis(1_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const KEYED: EffectClass = EffectClass::Keyed { window: Some(HOUR) };
const CLASSES: [EffectClass; 3] = [KEYED, EffectClass::Intended, EffectClass::Repeated];

fn held(before: Option<EffectRecord>) -> Held {
    Held {
        id: RecordId::new("default", "job", &IdempotencyKey::new("k").unwrap()),
        claim_id: ClaimId::new("mine"),
        token: FencingToken(2),
        rev: Rev(4),
        attempt: 2,
        lease_until: START + HOUR,
        unrecorded_since: None,
        effects: before
            .map(|effect| ("charge".to_owned(), effect))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    }
}

fn remembered(state: EffectState, generation: u64) -> EffectRecord {
    EffectRecord { state, generation, first_sent: START, request: None, result: None }
}

fn key(generation: u64) -> EffectKey {
    EffectKey::new(&held(None).id, "charge", generation)
}

fn begun(held: &Held, class: EffectClass, now: Timestamp) -> (Begin, Option<EffectRecord>) {
    begin(held, "charge", class, None, now)
}

#[test]
fn what_is_done_is_not_run_again() {
    let done = EffectRecord { result: Some("7".to_owned()), ..remembered(EffectState::Done, 0) };
    for class in CLASSES {
        let (begin, record) = begun(&held(Some(done.clone())), class, START + HOUR * 9);
        assert_eq!((begin, record), (Begin::Done("7".to_owned()), None), "{class:?}");
    }
}

#[test]
fn a_result_that_was_not_kept_does_not_make_an_effect_run_twice() {
    let done = held(Some(remembered(EffectState::Done, 0)));
    let now = START + HOUR / 2;
    let lost = Begin::Open { key: key(0), first_sent: START, why: Doubt::ResultLost };
    assert_eq!(begun(&done, EffectClass::Intended, now), (lost, None));
    // The provider knows the key; until it does not.
    let run = Begin::Run { key: key(0), sent_since: Some(START) };
    assert_eq!(begun(&done, KEYED, now).0, run);
    let (late, _) = begun(&done, KEYED, START + HOUR * 2);
    assert!(matches!(late, Begin::Open { why: Doubt::WindowOver, .. }));
}

#[test]
fn the_first_time_each_class_says_what_it_must() {
    let run = Begin::Run { key: key(0), sent_since: None };
    for (class, said) in [
        (KEYED, Some(remembered(EffectState::Sent, 0))),
        (EffectClass::Intended, Some(remembered(EffectState::Intent, 0))),
        (EffectClass::Repeated, None),
    ] {
        assert_eq!(begun(&held(None), class, START), (run.clone(), said), "{class:?}");
    }
}

#[test]
fn a_generation_begins_after_a_rejection_and_after_nothing_else() {
    for state in [EffectState::Intent, EffectState::Sent, EffectState::Unsent, EffectState::Done] {
        let (begin, _) = begun(&held(Some(remembered(state, 3))), KEYED, START);
        let (Begin::Run { key: used, .. } | Begin::Open { key: used, .. }) = begin else {
            panic!("{begin:?}")
        };
        assert_eq!(used, key(3), "{state}");
    }
    for class in CLASSES {
        let (begin, _) = begun(&held(Some(remembered(EffectState::Rejected, 3))), class, START);
        assert_eq!(begin, Begin::Run { key: key(4), sent_since: None }, "{class:?}");
    }
}

#[test]
fn an_open_intent_is_never_simply_sent_again() {
    let open = held(Some(remembered(EffectState::Intent, 0)));
    for class in [KEYED, EffectClass::Intended] {
        let expected = Begin::Open { key: key(0), first_sent: START, why: Doubt::Intent };
        assert_eq!(begun(&open, class, START + HOUR * 9), (expected, None), "{class:?}");
    }
}

#[test]
fn a_window_runs_from_the_first_sending_under_the_key() {
    let sent = held(Some(remembered(EffectState::Sent, 0)));
    let again = Begin::Run { key: key(0), sent_since: Some(START) };
    let (begin, record) = begun(&sent, KEYED, START + HOUR);
    assert_eq!((begin, record.map(|record| record.first_sent)), (again, Some(START)));
    let over = Begin::Open { key: key(0), first_sent: START, why: Doubt::WindowOver };
    assert_eq!(begun(&sent, KEYED, START + HOUR * 2).0, over);
    // Where nobody says how long the key is remembered, it is sent however late.
    let unbounded = EffectClass::Keyed { window: None };
    assert!(matches!(begun(&sent, unbounded, START + HOUR * 99).0, Begin::Run { .. }));
    // A rejected one begins anew, and so does its window.
    let rejected = held(Some(remembered(EffectState::Rejected, 0)));
    assert!(matches!(begun(&rejected, KEYED, START + HOUR * 99).0, Begin::Run { .. }));
}

#[test]
fn what_a_dead_attempt_may_have_sent_counts_as_sent() {
    let after_a_crash = Held { unrecorded_since: Some(START), ..held(None) };
    let (begin, record) = begun(&after_a_crash, KEYED, START + HOUR / 2);
    assert_eq!(begin, Begin::Run { key: key(0), sent_since: Some(START) });
    assert_eq!(record, Some(remembered(EffectState::Sent, 0)));
    let (late, _) = begun(&after_a_crash, KEYED, START + HOUR * 2);
    assert!(matches!(late, Begin::Open { why: Doubt::WindowOver, .. }));
    // Where every attempt lived to say what it had begun, what is not said was not begun.
    assert!(matches!(begun(&held(None), KEYED, START + HOUR * 99).0, Begin::Run { .. }));
}

#[test]
fn another_request_does_not_go_out_under_the_same_key() {
    let (one, two) = (Fingerprint::of(b"5 eur"), Fingerprint::of(b"6 eur"));
    let sent = EffectRecord { request: Some(one.clone()), ..remembered(EffectState::Sent, 0) };
    let held = held(Some(sent.clone()));
    let begun = |request| begin(&held, "charge", KEYED, request, START);
    let other = Begin::Open { key: key(0), first_sent: START, why: Doubt::OtherRequest };
    assert_eq!(begun(Some(&two)), (other, Some(sent.clone())));
    let same = Begin::Run { key: key(0), sent_since: Some(START) };
    assert_eq!(begun(Some(&one)), (same.clone(), Some(sent.clone())));
    assert_eq!(begun(None), (same, Some(sent)));
}

#[test]
fn an_error_says_what_is_remembered() {
    use EffectState::{Intent, Rejected, Sent, Unsent};
    for state in [Intent, Sent] {
        for (said, is_final, was_sent, left) in [
            (Said::Nothing, false, false, state),
            (Said::Nothing, true, false, state),
            (Said::Rejected, true, false, Rejected),
            (Said::Rejected, true, true, Rejected),
            (Said::NotSent, false, false, Unsent),
            (Said::NotSent, true, false, Rejected),
            (Said::Mismatch, true, false, Rejected),
            // Of the earlier request this says nothing.
            (Said::NotSent, false, true, state),
            (Said::NotSent, true, true, state),
            (Said::Mismatch, true, true, state),
        ] {
            assert_eq!(after_error(state, said, is_final, was_sent), left, "{said:?} {was_sent}");
        }
    }
}
