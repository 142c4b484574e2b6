//! Operations that were done before there were records.

use std::collections::BTreeMap;

use crate::protocol::write::{Change, ConditionalWrite, Expect};
use crate::protocol::{
    ClaimId, FencingToken, Fingerprint, IdempotencyKey, Output, Record, RecordId, Retention, Rev,
    Status, Timestamp,
};

/// An operation that was done before there were records.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Separates deployments in one table.
    pub namespace: String,
    /// The job's name.
    pub job: String,
    /// Names the operation.
    pub key: IdempotencyKey,
    /// Of the payload, if it is known; without it any payload counts as the same.
    pub fingerprint: Option<Fingerprint>,
    /// What a replay answers.
    pub output: Output,
    /// How long it is remembered.
    pub retention: Retention,
}

/// Records an operation as completed, if there is no record of it: what a worker has claimed,
/// done or given up is left alone.
pub fn import(done: Imported, claim_id: ClaimId, now: Timestamp) -> ConditionalWrite {
    let id = RecordId::new(&done.namespace, &done.job, &done.key);
    let record = Record {
        id: id.clone(),
        key: done.key.as_str().to_owned(),
        job: done.job,
        namespace: done.namespace,
        status: Status::Completed,
        claim_id,
        token: FencingToken(1),
        rev: Rev(1),
        attempt: 0,
        lease_until: now,
        not_before: None,
        fingerprint: done.fingerprint,
        unrecorded_since: None,
        effects: BTreeMap::new(),
        output: Some(done.output),
        error: None,
        quarantine: None,
        created_at: now,
        updated_at: now,
        message_id: None,
        expires_at: done.retention.expiry(now, now),
    };
    ConditionalWrite { id, expect: Expect::Absent, change: Change::Create(Box::new(record)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Claim, ClaimRequest, RetryPolicy, claim};
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn imported(fingerprint: Option<Fingerprint>) -> ConditionalWrite {
        let done = Imported {
            namespace: "default".to_owned(),
            job: "invoice".to_owned(),
            key: IdempotencyKey::new("42").unwrap(),
            fingerprint,
            output: Output::Omitted,
            retention: Retention::Forever,
        };
        import(done, ClaimId::new("import"), NOW)
    }

    fn message(payload: &[u8]) -> ClaimRequest {
        let key = IdempotencyKey::new("42").unwrap();
        ClaimRequest {
            id: RecordId::new("default", "invoice", &key),
            namespace: "default".to_owned(),
            job: "invoice".to_owned(),
            key,
            fingerprint: Some(Fingerprint::of(payload)),
            claim_id: ClaimId::new("worker"),
            lease_until: NOW + Duration::from_secs(30),
            skew: Duration::from_secs(5),
            retry: RetryPolicy::default(),
            retention: Retention::Forever,
            enqueued_at: Some(NOW),
            message_id: None,
        }
    }

    #[test]
    fn an_imported_operation_is_replayed_and_its_payload_compared_if_known() {
        let record = imported(None).apply(None);
        assert!(matches!(claim(record, &message(b"any"), NOW), Claim::Replay(_)));
        let record = imported(Some(Fingerprint::of(b"one"))).apply(None);
        assert!(matches!(claim(record.clone(), &message(b"one"), NOW), Claim::Replay(_)));
        assert!(matches!(claim(record, &message(b"two"), NOW), Claim::Mismatch(_)));
    }

    #[test]
    fn what_has_a_record_is_left_alone() {
        let Claim::Take { write, .. } = claim(None, &message(b"one"), NOW) else {
            panic!("the key is free")
        };
        assert_eq!(imported(None).apply(write.apply(None).as_ref()), None);
    }
}
