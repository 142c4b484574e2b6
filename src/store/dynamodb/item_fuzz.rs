//! Whatever stands in an item: it is a record, or an error that names the attribute.

use fastrand::Rng;

use super::*;
use crate::fuzz::fuzz_made;
use crate::protocol::{EffectState, IdempotencyKey, Quarantine};

fn text_of(rng: &mut Rng) -> String {
    (0..rng.usize(0..6)).map(|_| rng.char(..)).collect()
}

fn instant(rng: &mut Rng) -> Timestamp {
    Timestamp::from_millis(rng.u64(..))
}

fn maybe<T>(rng: &mut Rng, make: impl Fn(&mut Rng) -> T) -> Option<T> {
    rng.bool().then(|| make(rng))
}

fn record(rng: &mut Rng) -> Record {
    let states = [EffectState::Intent, EffectState::Sent, EffectState::Done, EffectState::Rejected];
    let statuses = [Status::Claimed, Status::Released, Status::Completed, Status::Unknown];
    let effect = |rng: &mut Rng| EffectRecord {
        state: states[rng.usize(..states.len())],
        generation: rng.u64(..),
        first_sent: instant(rng),
        request: maybe(rng, |rng| Fingerprint::from_stored(text_of(rng))),
        result: maybe(rng, text_of),
    };
    Record {
        id: RecordId::new("default", "job", &IdempotencyKey::new("k").unwrap()),
        key: text_of(rng),
        job: text_of(rng),
        namespace: text_of(rng),
        status: statuses[rng.usize(..statuses.len())],
        claim_id: ClaimId::new(text_of(rng)),
        token: FencingToken(rng.u64(..)),
        rev: Rev(rng.u64(..)),
        attempt: rng.u32(..),
        lease_until: instant(rng),
        not_before: maybe(rng, instant),
        fingerprint: maybe(rng, |rng| Fingerprint::from_stored(text_of(rng))),
        unrecorded_since: maybe(rng, instant),
        effects: (0..rng.usize(0..3)).map(|_| (text_of(rng), effect(rng))).collect(),
        output: maybe(rng, |rng| match rng.bool() {
            true => Output::Omitted,
            false => Output::Stored(text_of(rng)),
        }),
        error: maybe(rng, text_of),
        quarantine: maybe(rng, |_| Quarantine::Pending),
        created_at: instant(rng),
        updated_at: instant(rng),
        message_id: maybe(rng, text_of),
        expires_at: maybe(rng, |rng| EpochSeconds::from_secs(rng.u64(..))),
    }
}

/// Anything that DynamoDB can hold, and some that it cannot.
fn value(rng: &mut Rng, depth: u32) -> AttributeValue {
    match rng.u8(0..if depth > 3 { 8 } else { 10 }) {
        0 => text(text_of(rng)),
        1 => number(rng.u64(..)),
        2 => AttributeValue::N(text_of(rng)),
        3 => AttributeValue::N(
            ["-1", "1e3", "1.5", "18446744073709551616", ""][rng.usize(..5)].to_owned(),
        ),
        4 => AttributeValue::Bool(rng.bool()),
        5 => AttributeValue::Null(true),
        6 => AttributeValue::Ss(vec![text_of(rng)]),
        7 => text(["claimed", "pending", "done", "intent"][rng.usize(..4)]),
        8 => AttributeValue::L((0..rng.usize(0..3)).map(|_| value(rng, depth + 1)).collect()),
        _ => {
            let names = ["state", "generation", "first_sent", "request", "result", ""];
            let named =
                |rng: &mut Rng| (names[rng.usize(..names.len())].to_owned(), value(rng, depth + 1));
            AttributeValue::M((0..rng.usize(0..6)).map(|_| named(rng)).collect())
        }
    }
}

/// Changes one attribute, or one of one effect's.
fn garble(attributes: &mut Attributes, rng: &mut Rng) {
    let mut names: Vec<_> = attributes.keys().cloned().collect();
    names.sort();
    let Some(name) = rng.choice(names) else {
        return;
    };
    if let Some(AttributeValue::M(inner)) = attributes.get_mut(&name)
        && rng.u8(..) > 50
    {
        return garble(inner, rng);
    }
    match rng.bool() {
        true => drop(attributes.remove(&name)),
        false => drop(attributes.insert(name, value(rng, 0))),
    }
}

#[test]
fn an_item_is_a_record_or_an_error_that_names_the_attribute() {
    fuzz_made("item", |rng| {
        let record = record(rng);
        let mut attributes = encode(&record);
        assert_eq!(decode(&record.id, &attributes).unwrap(), record);
        for _ in 0..rng.usize(1..4) {
            garble(&mut attributes, rng);
        }
        match decode(&record.id, &attributes) {
            Ok(read) => assert_eq!(decode(&read.id, &encode(&read)).unwrap(), read),
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("attribute") || said.contains("version"), "{said}");
                assert_eq!(error.kind(), ErrorKind::Record);
            }
        }
        let _ = (id(&attributes), decode_cursor(&attributes));
    });
}
