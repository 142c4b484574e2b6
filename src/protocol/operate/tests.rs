use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::protocol::{
    Begin, Claim, ClaimRequest, EffectClass, EffectKey, EffectRecord, EffectState, FencingToken,
    Fingerprint, Held, IdempotencyKey, Output, Quarantine, RecordId, Retention, RetryPolicy, Rev,
    Status, begin, claim, complete,
};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const SKEW: Duration = Duration::from_secs(5);
const LAG: Duration = Duration::from_secs(60);

fn id() -> ClaimId {
    ClaimId::new("operator")
}

fn record(status: Status) -> Record {
    let key = IdempotencyKey::new("42").unwrap();
    Record {
        id: RecordId::new("default", "invoice", &key),
        key: "42".to_owned(),
        job: "invoice".to_owned(),
        namespace: "default".to_owned(),
        status,
        claim_id: ClaimId::new("worker"),
        token: FencingToken(3),
        rev: Rev(7),
        attempt: 5,
        lease_until: NOW - Duration::from_secs(600),
        not_before: None,
        fingerprint: Some(Fingerprint::of(b"one")),
        unrecorded_since: None,
        effects: BTreeMap::new(),
        output: None,
        error: Some("why".to_owned()),
        quarantine: Some(Quarantine::Sent),
        created_at: NOW - Duration::from_secs(900),
        updated_at: NOW - Duration::from_secs(700),
        message_id: Some("m".to_owned()),
        expires_at: None,
    }
}

fn effect(state: EffectState) -> EffectRecord {
    let first_sent = NOW - Duration::from_secs(650);
    let request = Some(Fingerprint::of(b"bytes"));
    EffectRecord { state, generation: 2, first_sent, request, result: None }
}

fn with(status: Status, effects: &[(&str, EffectState)]) -> Record {
    let effects = effects.iter().map(|(name, state)| ((*name).to_owned(), effect(*state)));
    Record { effects: effects.collect(), ..record(status) }
}

fn message(payload: &[u8]) -> ClaimRequest {
    let key = IdempotencyKey::new("42").unwrap();
    ClaimRequest {
        id: RecordId::new("default", "invoice", &key),
        namespace: "default".to_owned(),
        job: "invoice".to_owned(),
        key,
        fingerprint: Some(Fingerprint::of(payload)),
        claim_id: ClaimId::new("next"),
        lease_until: NOW + Duration::from_secs(30),
        skew: SKEW,
        retry: RetryPolicy::default(),
        retention: Retention::Forever,
        enqueued_at: Some(NOW - Duration::from_secs(5000)),
        message_id: None,
    }
}

/// The record after the write landed, which is a claim's write in every case.
fn landed(record: &Record, write: Result<ConditionalWrite, NotNow>) -> Record {
    let after = write.unwrap().apply(Some(record)).expect("it is decided on this record");
    assert_eq!((after.claim_id.as_str(), after.updated_at), ("operator", NOW));
    assert_eq!((after.token, after.rev), (FencingToken(4), Rev(8)));
    // Whoever held it can write no more.
    let (late, _) = complete(&Held::of(record), Output::Omitted, Retention::Forever, NOW);
    assert_eq!(late.apply(Some(&after)), None);
    after
}

fn taken(record: Record, payload: &[u8]) -> (Held, u32) {
    let Claim::Take { write, held } = claim(Some(record.clone()), &message(payload), NOW) else {
        panic!("it is due: {record:?}")
    };
    (*held, write.apply(Some(&record)).unwrap().attempt)
}

fn releasing(record: &Record) -> Result<ConditionalWrite, NotNow> {
    release(record, &Release { claim_id: id(), skew: SKEW }, NOW)
}

fn replaying(record: &Record, payload: &[u8]) -> Result<ConditionalWrite, NotNow> {
    let fingerprint = Some(Fingerprint::of(payload));
    replay(record, &Replay { claim_id: id(), fingerprint }, NOW)
}

fn forgetting(record: &Record) -> Result<ConditionalWrite, NotNow> {
    forget(record, &Forget { claim_id: id(), skew: SKEW }, NOW)
}

fn resolving(record: &Record, resolution: Resolution) -> Result<ConditionalWrite, NotNow> {
    let retention = Retention::For(Duration::from_secs(100));
    let request =
        Resolve { claim_id: id(), skew: SKEW, settles_within: LAG, retention, resolution };
    resolve(record, &request, NOW)
}

fn not_done(effect: Option<&str>) -> Resolution {
    Resolution::NotDone { effect: effect.map(str::to_owned) }
}

fn done(effect: &str) -> Resolution {
    Resolution::EffectDone { effect: effect.to_owned(), result: "{\"id\":1}".to_owned() }
}

const STATUSES: [Status; 5] =
    [Status::Claimed, Status::Released, Status::Completed, Status::Failed, Status::Unknown];

#[test]
fn each_verb_is_for_its_status_alone() {
    for status in STATUSES {
        let record = record(status);
        let is = |wanted: Status| wanted == status;
        assert_eq!(releasing(&record).is_ok(), is(Status::Claimed), "{status}");
        assert_eq!(replaying(&record, b"one").is_ok(), is(Status::Failed), "{status}");
        assert_eq!(resolving(&record, not_done(None)).is_ok(), is(Status::Unknown), "{status}");
        let all_done = Resolution::JobDone(Output::Omitted);
        assert_eq!(resolving(&record, all_done).is_ok(), is(Status::Unknown), "{status}");
        assert_eq!(forgetting(&record).is_ok(), !is(Status::Unknown), "{status}");
    }
}

#[test]
fn a_claim_is_released_and_forgotten_only_past_its_lease_and_the_margin() {
    let live =
        Record { lease_until: NOW - SKEW + Duration::from_millis(1), ..record(Status::Claimed) };
    let until = NOW + Duration::from_millis(1);
    assert_eq!(releasing(&live), Err(NotNow::Leased { until }));
    assert_eq!(forgetting(&live), Err(NotNow::Leased { until }));
    assert_eq!(NotNow::Leased { until }.until(), Some(until));
    let over = Record { lease_until: NOW - SKEW, ..live };
    let after = landed(&over, releasing(&over));
    assert_eq!((after.status, after.not_before), (Status::Released, None));
    // What the dead attempt began is dated, as a take-over would.
    assert_eq!(after.unrecorded_since, Some(over.updated_at));
    assert_eq!(taken(after, b"one").1, 6);
    landed(&over, forgetting(&over));
}

#[test]
fn what_is_released_keeps_its_open_intent() {
    let record = with(Status::Claimed, &[("charge", EffectState::Intent)]);
    let after = landed(&record, releasing(&record));
    let (held, _) = taken(after, b"one");
    let (begun, _) = begin(&held, "charge", EffectClass::Intended, None, NOW);
    assert!(matches!(begun, Begin::Open { .. }));
}

#[test]
fn a_failed_job_is_replayed_with_its_own_payload_and_a_budget_anew() {
    let record =
        with(Status::Failed, &[("charge", EffectState::Rejected), ("letter", EffectState::Unsent)]);
    assert_eq!(replaying(&record, b"two"), Err(NotNow::OtherPayload));
    let after = landed(&record, replaying(&record, b"one"));
    assert_eq!((after.status, after.quarantine), (Status::Released, None));
    assert_eq!(after.effects, record.effects);
    // Also by a message that is older than the failure.
    let (held, attempt) = taken(after, b"one");
    assert_eq!(attempt, 1);
    let keyed = EffectClass::Keyed { window: None };
    let (begun, _) = begin(&held, "charge", keyed, None, NOW);
    let key = EffectKey::new(&record.id, "charge", 3);
    assert_eq!(begun, Begin::Run { key, sent_since: None });

    let open = with(Status::Failed, &[("charge", EffectState::Intent)]);
    let refused = NotNow::OpenIntent { effect: "charge".to_owned() };
    assert_eq!(replaying(&open, b"one"), Err(refused.clone()));
    assert_eq!(forgetting(&open), Err(refused));
}

#[test]
fn what_is_forgotten_runs_anew_with_any_payload_and_its_token_goes_on() {
    let states = [("charge", EffectState::Sent), ("letter", EffectState::Done)];
    let record = Record {
        output: Some(Output::Omitted),
        unrecorded_since: Some(NOW),
        ..with(Status::Completed, &states)
    };
    let after = landed(&record, forgetting(&record));
    assert!(after.expires_at.unwrap().is_past(NOW - SKEW), "also by a clock that is behind");
    let (held, attempt) = taken(after.clone(), b"two");
    assert_eq!((held.token, attempt, held.effects.len()), (FencingToken(5), 1, 0));
    assert_eq!(held.unrecorded_since, None);
    // And for a clock that finds it not expired yet.
    let slow = Record { expires_at: None, ..after };
    assert_eq!(slow.output, None);
    assert_eq!(taken(slow, b"two").0.effects.len(), 0);
}

#[test]
fn nothing_is_resolved_while_a_request_may_be_under_way() {
    let late = |lease: Duration, sent: Duration| {
        let mut record = with(Status::Unknown, &[("charge", EffectState::Intent)]);
        record.lease_until = NOW - lease;
        record.effects.get_mut("charge").unwrap().first_sent = NOW - sent;
        record
    };
    let (ms, long) = (Duration::from_millis(1), Duration::from_secs(600));
    for resolution in [not_done(None), done("charge"), Resolution::JobDone(Output::Omitted)] {
        let until = Err(NotNow::UnderWay { until: NOW + ms });
        // The attempt's own time.
        assert_eq!(resolving(&late(SKEW - ms, long), resolution.clone()), until);
        // What the request may take, and the clock that dated it.
        assert_eq!(resolving(&late(long, LAG + SKEW * 2 - ms), resolution.clone()), until);
        assert!(resolving(&late(SKEW, LAG + SKEW * 2), resolution).is_ok());
    }
}

#[test]
fn a_job_that_was_done_completes_and_its_intents_are_closed() {
    let record = with(Status::Unknown, &[("charge", EffectState::Intent)]);
    let output = Output::Stored("1".to_owned());
    let after = landed(&record, resolving(&record, Resolution::JobDone(output.clone())));
    assert_eq!((after.status, after.output.as_ref()), (Status::Completed, Some(&output)));
    assert!(!after.has_open_intent() && after.error.is_none());
    assert!(after.expires_at.is_some_and(|at| !at.is_past(NOW + Duration::from_secs(99))));
    assert!(matches!(claim(Some(after), &message(b"one"), NOW), Claim::Replay(_)));
}

#[test]
fn an_effect_that_was_done_is_not_done_again_and_the_job_goes_on() {
    for state in [EffectState::Intent, EffectState::Sent, EffectState::Done] {
        let record = with(Status::Unknown, &[("charge", state)]);
        let after = landed(&record, resolving(&record, done("charge")));
        let (held, attempt) = taken(after, b"one");
        assert_eq!(attempt, 1);
        for class in [EffectClass::Intended, EffectClass::Keyed { window: None }] {
            let (begun, _) = begin(&held, "charge", class, None, NOW);
            assert_eq!(begun, Begin::Done("{\"id\":1}".to_owned()));
        }
    }
}

#[test]
fn an_intent_that_was_not_done_may_begin_once_more() {
    let record = with(Status::Unknown, &[("charge", EffectState::Intent)]);
    for named in [None, Some("charge")] {
        let after = landed(&record, resolving(&record, not_done(named)));
        assert_eq!(after.quarantine, None);
        let (held, _) = taken(after, b"one");
        let (begun, noted) = begin(&held, "charge", EffectClass::Intended, None, NOW);
        // By the reference that a provider would find it under.
        let key = EffectKey::new(&record.id, "charge", 2);
        assert_eq!(begun, Begin::Run { key, sent_since: None });
        assert_eq!(noted.unwrap().state, EffectState::Intent);
    }
}

#[test]
fn a_keyed_effect_that_was_not_done_gets_its_next_key_and_must_be_named() {
    let record = with(Status::Unknown, &[("charge", EffectState::Sent)]);
    let in_doubt = vec!["charge".to_owned()];
    assert_eq!(resolving(&record, not_done(None)), Err(NotNow::NameTheEffect { in_doubt }));
    let window = Duration::from_secs(60);
    for died in [None, Some(NOW - Duration::from_secs(5000))] {
        let record = Record { unrecorded_since: died, ..record.clone() };
        let after = landed(&record, resolving(&record, not_done(Some("charge"))));
        let (held, _) = taken(after, b"one");
        let keyed = EffectClass::Keyed { window: Some(window) };
        let other = Fingerprint::of(b"other bytes");
        let (begun, _) = begin(&held, "charge", keyed, Some(&other), NOW);
        let key = EffectKey::new(&record.id, "charge", 3);
        assert_eq!(begun, Begin::Run { key, sent_since: died.map(|_| NOW) });
    }
}

#[test]
fn effects_in_doubt_are_resolved_one_after_another_and_others_are_left_alone() {
    let states = [
        ("a", EffectState::Intent),
        ("b", EffectState::Intent),
        ("sent", EffectState::Sent),
        ("unsent", EffectState::Unsent),
        ("rejected", EffectState::Rejected),
    ];
    let record = with(Status::Unknown, &states);
    let first = landed(&record, resolving(&record, done("a")));
    assert_eq!((first.status, first.quarantine), (Status::Unknown, Some(Quarantine::Sent)));
    let second = resolving(&first, not_done(Some("b"))).unwrap().apply(Some(&first)).unwrap();
    assert_eq!(second.status, Status::Released);
    let kept = |record: &Record| record.effects["sent"].clone();
    assert_eq!(kept(&second), kept(&record));
    let all = landed(&record, resolving(&record, not_done(None)));
    assert_eq!((all.status, kept(&all)), (Status::Released, kept(&record)));

    for (name, state) in [("unsent", EffectState::Unsent), ("rejected", EffectState::Rejected)] {
        let refused = Err(NotNow::NotInDoubt { state });
        assert_eq!(resolving(&record, done(name)), refused);
        assert_eq!(resolving(&record, not_done(Some(name))), refused);
    }
    let done_by_record = with(Status::Unknown, &[("charge", EffectState::Done)]);
    let refused = Err(NotNow::NotInDoubt { state: EffectState::Done });
    assert_eq!(resolving(&done_by_record, not_done(Some("charge"))), refused);
    let recorded = vec!["charge".to_owned()];
    assert_eq!(resolving(&done_by_record, done("x")), Err(NotNow::NoSuchEffect { recorded }));
}

#[test]
fn a_refusal_says_what_to_do() {
    for (refusal, words) in [
        (NotNow::Status { is: Status::Failed, wanted: "a claimed one" }, "it is failed"),
        (NotNow::Leased { until: NOW }, "under its lease"),
        (NotNow::UnderWay { until: NOW }, "still be under way"),
        (NotNow::OpenIntent { effect: "charge".to_owned() }, "resolve it first"),
        (NotNow::OtherPayload, "bound to another payload"),
        (NotNow::NoSuchEffect { recorded: Vec::new() }, "leave the effect out"),
        (NotNow::NoSuchEffect { recorded: vec!["charge".to_owned()] }, "there is charge"),
        (NotNow::NotInDoubt { state: EffectState::Unsent }, "recorded as unsent"),
        (NotNow::NameTheEffect { in_doubt: vec!["charge".to_owned()] }, "new key: charge"),
    ] {
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}

/// One key, its workers, an effect that is to happen at most once, and a person who looks before
/// saying anything.
#[derive(Default)]
struct World {
    now: Timestamp,
    record: Option<Record>,
    /// Attempts, which may all be alive.
    held: Vec<Held>,
    /// Requests on their way, and by when they have arrived or never will.
    under_way: Vec<Timestamp>,
    happened: u32,
    was_completed: bool,
    writes: u64,
}

impl World {
    fn lands(&mut self, write: &ConditionalWrite) -> bool {
        let Some(after) = write.apply(self.record.as_ref()) else { return false };
        if let Some(before) = &self.record {
            assert!(after.rev == before.rev.next() && after.token >= before.token);
            assert!(before.status != Status::Completed || after.status == Status::Completed);
        }
        self.record = Some(after);
        true
    }

    /// Mostly, those that may still write; now and then, those from before.
    fn nth_last(&self, n: u8) -> usize {
        self.held.len().saturating_sub(1 + usize::from(n) / 2)
    }

    fn attempts(&mut self, payload: &[u8]) {
        let request = ClaimRequest {
            claim_id: ClaimId::new(format!("claim-{}", self.writes)),
            lease_until: self.now + Duration::from_secs(30),
            enqueued_at: Some(self.now),
            ..message(payload)
        };
        match claim(self.record.clone(), &request, self.now) {
            Claim::Take { write, held } if self.lands(&write) => self.held.push(*held),
            Claim::Spend { write, .. } => drop(self.lands(&write)),
            _ => {}
        }
    }

    /// An attempt sends its effect, if it may; its request arrives now, later, or never.
    fn sends(&mut self, n: usize, arrives: u8) {
        let Some(mut held) = self.held.get(n).cloned().filter(|it| self.now < it.lease_until)
        else {
            return;
        };
        let (begun, noted) = begin(&held, "charge", EffectClass::Intended, None, self.now);
        if let (Begin::Run { .. }, Some(noted)) = (begun, noted) {
            held.effects.insert("charge".to_owned(), noted);
            if self.lands(&crate::protocol::keep_effects(&held, self.now)) {
                self.held[n] = held.advanced();
                match arrives % 3 {
                    0 => self.happened += 1,
                    1 => self.under_way.push(self.now + LAG),
                    _ => {}
                }
            }
        }
    }

    fn ends(&mut self, n: usize, how: u8) {
        let Some(mut held) = self.held.get(n).cloned() else { return };
        let policy = (&RetryPolicy::default(), Retention::Forever);
        let failure = match how % 3 {
            0 => crate::protocol::Failure::Retryable,
            1 => crate::protocol::Failure::Terminal,
            _ => {
                if let Some(effect) = held.effects.get_mut("charge")
                    && self.happened > 0
                {
                    effect.state = EffectState::Done;
                }
                let (write, _) = complete(&held, Output::Omitted, Retention::Forever, self.now);
                self.lands(&write);
                return;
            }
        };
        let (write, _) =
            crate::protocol::fail(&held, &failure, String::new(), policy, self.now, 0.0);
        self.lands(&write);
    }

    fn operator(&mut self, verb: u8) {
        let Some(record) = self.record.clone() else { return };
        let claim_id = ClaimId::new(format!("operator-{}", self.writes));
        // What a person sees at the provider.
        let has_happened = self.happened > 0;
        let resolution = match (has_happened, verb % 2) {
            (true, 0) => Resolution::JobDone(Output::Omitted),
            (true, _) => done("charge"),
            (false, 0) => not_done(None),
            (false, _) => not_done(Some("charge")),
        };
        let resolving = Resolve {
            claim_id: claim_id.clone(),
            skew: SKEW,
            settles_within: LAG,
            retention: Retention::Forever,
            resolution,
        };
        let fingerprint = Some(Fingerprint::of(b"one"));
        let write = match verb % 4 {
            0 => release(&record, &Release { claim_id, skew: SKEW }, self.now),
            1 => replay(&record, &Replay { claim_id, fingerprint }, self.now),
            _ => resolve(&record, &resolving, self.now),
        };
        if let Ok(write) = write {
            assert!(self.lands(&write), "nobody came between");
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4096))]

    #[test]
    fn with_an_operator_at_work_an_effect_happens_at_most_once(
        steps in proptest::collection::vec((0..6u8, 0..4u8, 0..4u8), 1..60)
    ) {
        let mut world = World { now: NOW, ..World::default() };
        for (step, a, b) in steps {
            world.writes += 1;
            match step {
                0 => world.attempts(b"one"),
                1 => world.sends(world.nth_last(a), b),
                2 => world.ends(world.nth_last(a), b),
                3 => world.operator(a),
                4 => {
                    let by = Duration::from_secs([1, 20, 40, 90][usize::from(a)]);
                    world.now = world.now + by;
                    let now = world.now;
                    // What has not arrived by then never will.
                    world.under_way.retain(|until| now <= *until);
                }
                _ => world.happened += u32::from(world.under_way.pop().is_some()),
            }
            assert!(world.happened <= 1, "it happened twice");
            let is = world.record.as_ref().is_some_and(|it| it.status == Status::Completed);
            assert!(!world.was_completed || is, "completed has left");
            world.was_completed |= is;
        }
    }
}
