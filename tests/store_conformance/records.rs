//! Records and writes to try a store with.

use std::collections::BTreeMap;
use std::time::Duration;

use onlyonce::protocol::{
    Claim, ClaimId, ClaimRequest, ConditionalWrite, EffectRecord, EffectState, Fingerprint, Held,
    IdempotencyKey, Quarantine, RecordId, Retention, RetryPolicy, Timestamp, claim,
};

pub const NOW: Timestamp = Timestamp::from_millis(1_900_000_000_000);
pub const SECOND: Duration = Duration::from_secs(1);

pub fn request(key: &str, claim_id: &str) -> ClaimRequest {
    let key = IdempotencyKey::new(key).unwrap();
    ClaimRequest {
        id: RecordId::new("default", "job", &key),
        namespace: "default".to_owned(),
        job: "job".to_owned(),
        key,
        fingerprint: Some(Fingerprint::of(b"{}")),
        claim_id: ClaimId::new(claim_id),
        lease_until: NOW + SECOND * 30,
        skew: SECOND * 5,
        retry: RetryPolicy::default(),
        retention: Retention::default(),
        enqueued_at: Some(NOW),
        message_id: Some("m-1".to_owned()),
    }
}

/// The write that claims a free key, and the claim.
pub fn first_claim(key: &str, claim_id: &str) -> (ConditionalWrite, Held) {
    match claim(None, &request(key, claim_id), NOW) {
        Claim::Take { write, held } => (*write, *held),
        other => panic!("{other:?}"),
    }
}

pub fn effects() -> BTreeMap<String, EffectRecord> {
    let effect = |state, result: Option<&str>| EffectRecord {
        state,
        generation: 2,
        first_sent: NOW,
        request: None,
        result: result.map(str::to_owned),
    };
    BTreeMap::from([
        ("charge".to_owned(), effect(EffectState::Done, Some("{\"id\":1}"))),
        ("mail".to_owned(), effect(EffectState::Intent, None)),
        ("refund".to_owned(), effect(EffectState::Rejected, None)),
        ("tax".to_owned(), effect(EffectState::Unsent, None)),
        (
            "transfer".to_owned(),
            EffectRecord {
                request: Some(Fingerprint::of(b"5 eur")),
                ..effect(EffectState::Sent, None)
            },
        ),
    ])
}

pub fn sent() -> Option<Quarantine> {
    Some(Quarantine::Sent)
}
