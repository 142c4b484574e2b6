//! Claiming: one conditional write and no read. The first call sees no record; a conflict brings
//! the current one, and the same function decides again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::settle::Held;
use super::write::{Change, ConditionalWrite, Expect, Field};
use super::{
    ClaimId, EpochSeconds, FencingToken, Fingerprint, IdempotencyKey, Quarantine, Record, RecordId,
    Retention, RetryPolicy, Rev, Status, Timestamp,
};

/// What one attempt asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The record's id, made from the next three.
    pub id: RecordId,
    /// Separates deployments in one table.
    pub namespace: String,
    /// The job's name.
    pub job: String,
    /// Names the operation.
    pub key: IdempotencyKey,
    /// Of the payload at hand; `None` turns the comparison off.
    pub fingerprint: Option<Fingerprint>,
    /// Minted for this attempt.
    pub claim_id: ClaimId,
    /// The attempt's end.
    pub lease_until: Timestamp,
    /// How far clocks may differ: added once to a lease before a take-over.
    pub skew: Duration,
    /// The job's budget.
    pub retry: RetryPolicy,
    /// How long the record is remembered.
    pub retention: Retention,
    /// When the message was enqueued (SQS SentTimestamp), if the queue says so.
    pub enqueued_at: Option<Timestamp>,
    /// The queue's id of the message.
    pub message_id: Option<String>,
}

impl ClaimRequest {
    /// Whether its message was enqueued before the job `failed`, whatever the clocks. Any other may
    /// be that job's own message, moved back from quarantine too soon to re-open it: if it were
    /// acknowledged as a copy, nothing would be left to redrive.
    pub fn is_stray(&self, failed: &Record) -> bool {
        self.enqueued_at.is_some_and(|sent| sent + self.skew < failed.updated_at)
    }
}

/// What to do with a message, given what is known of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Send this write. If it lands, `held` is ours; if not, decide again with what is there.
    Take {
        /// Creates or takes over the record.
        write: Box<ConditionalWrite>,
        /// The claim, should the write land.
        held: Box<Held>,
    },
    /// The claim is ours already: its write had landed and only the reply was lost.
    Held(Box<Held>),
    /// Done before: answer the stored output and acknowledge.
    Replay(Box<Record>),
    /// The key was used with another payload. Never run; quarantine the message.
    Mismatch(Box<Record>),
    /// Given up before, or its outcome cannot be known: quarantine if still to be sent or if the
    /// message [is no stray copy](ClaimRequest::is_stray), then acknowledge.
    Parked(Box<Record>),
    /// Released and not due yet.
    Later {
        /// The record as it is.
        record: Box<Record>,
        /// When it is due.
        retry_at: Timestamp,
    },
    /// Another attempt is believed to be running.
    Busy {
        /// The record as it is.
        record: Box<Record>,
        /// When a take-over is allowed.
        retry_at: Timestamp,
    },
    /// The last attempt of the budget died. Send this write; if it lands, the record is parked as
    /// `parked` says; if not, decide again.
    Spend {
        /// Marks the record failed, or unknown if an intent is open.
        write: Box<ConditionalWrite>,
        /// The record, should the write land.
        parked: Box<Record>,
    },
}

/// Decides on a message: first matching row wins.
pub fn claim(current: Option<Record>, request: &ClaimRequest, now: Timestamp) -> Claim {
    let Some(record) = current else {
        return create(request, now);
    };
    let lease_ends = record.lease_until + request.skew;
    let is_live = record.status == Status::Claimed && now < lease_ends;

    // My write landed and its reply was lost: waiting for myself would stall the key for a lease.
    if record.status == Status::Claimed && record.claim_id == request.claim_id {
        return Claim::Held(Box::new(Held::of(&record)));
    }
    // TTL deletes days late: an expired record is as good as gone, except that its token goes on,
    // so that whoever held it still loses.
    let may_expire = record.status != Status::Unknown && !record.has_open_intent() && !is_live;
    if may_expire && record.expires_at.is_some_and(|expiry| expiry.is_past(now)) {
        return take_over(&record, request, now, Fresh::AsNew);
    }
    // Before the status: another payload must not even be answered with this one's output.
    if record.is_of_other(request.fingerprint.as_ref()) {
        return Claim::Mismatch(Box::new(record));
    }
    match record.status {
        Status::Completed => Claim::Replay(Box::new(record)),
        Status::Unknown => Claim::Parked(Box::new(record)),
        // A stray copy of the message that failed was enqueued before the failure; a redrive or a
        // new request after it.
        Status::Failed => match request.enqueued_at {
            Some(sent) if sent > record.updated_at + request.skew => {
                take_over(&record, request, now, Fresh::Reopened)
            }
            _ => Claim::Parked(Box::new(record)),
        },
        Status::Released => match record.not_before {
            Some(retry_at) if now < retry_at => Claim::Later { record: Box::new(record), retry_at },
            _ => take_over(&record, request, now, Fresh::NextAttempt),
        },
        Status::Claimed if is_live => {
            Claim::Busy { record: Box::new(record), retry_at: lease_ends }
        }
        Status::Claimed if request.retry.is_spent(record.attempt) => spend(&record, request, now),
        Status::Claimed => take_over(&record, request, now, Fresh::NextAttempt),
    }
}

fn create(request: &ClaimRequest, now: Timestamp) -> Claim {
    let record = Record {
        id: request.id.clone(),
        key: request.key.as_str().to_owned(),
        job: request.job.clone(),
        namespace: request.namespace.clone(),
        status: Status::Claimed,
        claim_id: request.claim_id.clone(),
        token: FencingToken(1),
        rev: Rev(1),
        attempt: 1,
        lease_until: request.lease_until,
        not_before: None,
        fingerprint: request.fingerprint.clone(),
        unrecorded_since: None,
        effects: BTreeMap::new(),
        output: None,
        error: None,
        quarantine: None,
        created_at: now,
        updated_at: now,
        message_id: request.message_id.clone(),
        expires_at: expiry(request, now),
    };
    let held = Box::new(Held::of(&record));
    let write = ConditionalWrite {
        id: record.id.clone(),
        expect: Expect::Absent,
        change: Change::Create(Box::new(record)),
    };
    Claim::Take { write: Box::new(write), held }
}

/// What a take-over starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fresh {
    /// The record had expired: nothing of it counts but its token.
    AsNew,
    /// A failed job runs anew: its attempts are reset, its effects stand.
    Reopened,
    /// The next attempt of the same run.
    NextAttempt,
}

fn take_over(record: &Record, request: &ClaimRequest, now: Timestamp, from: Fresh) -> Claim {
    let attempt = match from {
        Fresh::NextAttempt => record.attempt.saturating_add(1),
        Fresh::AsNew | Fresh::Reopened => 1,
    };
    let mut fields = vec![
        Field::Status(Status::Claimed),
        Field::ClaimId(request.claim_id.clone()),
        Field::Token(record.token.next()),
        Field::Rev(record.rev.next()),
        Field::Attempt(attempt),
        Field::LeaseUntil(request.lease_until),
        Field::NotBefore(None),
        Field::Quarantine(None),
        Field::UpdatedAt(now),
        Field::MessageId(request.message_id.clone()),
    ];
    if from == Fresh::AsNew {
        fields.extend([
            Field::Fingerprint(request.fingerprint.clone()),
            Field::UnrecordedSince(None),
            Field::Effects(BTreeMap::new()),
            Field::Output(None),
            Field::Error(None),
            Field::CreatedAt(now),
        ]);
    }
    if from == Fresh::NextAttempt && record.status == Status::Claimed {
        fields.push(Field::UnrecordedSince(unrecorded_since(record)));
    }
    // An open intent must be found again however late: it never expires.
    let keeps_intent = from != Fresh::AsNew && record.has_open_intent();
    let expires_at = if keeps_intent { None } else { expiry(request, now) };
    fields.push(Field::ExpiresAt(expires_at));

    let (write, taken) = update(record, fields);
    Claim::Take { write: Box::new(write), held: Box::new(Held::of(&taken)) }
}

/// The worker of the last attempt died without a word. Running once more would go over the budget;
/// leaving it claimed would wedge the key.
fn spend(record: &Record, request: &ClaimRequest, now: Timestamp) -> Claim {
    let is_unknown = record.has_open_intent();
    let status = if is_unknown { Status::Unknown } else { Status::Failed };
    let error = format!("attempt {} ended without an outcome; the budget is spent", record.attempt);
    let expires_at = if is_unknown { None } else { request.retention.expiry(now, now) };
    let (write, parked) = update(
        record,
        vec![
            Field::Status(status),
            Field::ClaimId(request.claim_id.clone()),
            Field::Token(record.token.next()),
            Field::Rev(record.rev.next()),
            Field::Error(Some(error)),
            Field::Quarantine(Some(Quarantine::Pending)),
            Field::UnrecordedSince(unrecorded_since(record)),
            Field::UpdatedAt(now),
            Field::ExpiresAt(expires_at),
        ],
    );
    Claim::Spend { write: Box::new(write), parked: Box::new(parked) }
}

/// The attempt that holds `record` has died: what it began after its last write nobody knows.
pub(super) fn unrecorded_since(record: &Record) -> Option<Timestamp> {
    record.unrecorded_since.or(Some(record.updated_at))
}

/// A write of these fields, and the record should it land.
fn update(record: &Record, fields: Vec<Field>) -> (ConditionalWrite, Record) {
    let mut landed = record.clone();
    fields.iter().for_each(|field| field.apply(&mut landed));
    let write = ConditionalWrite {
        id: record.id.clone(),
        expect: Expect::At { claim_id: record.claim_id.clone(), rev: record.rev },
        change: Change::Update(fields),
    };
    (write, landed)
}

fn expiry(request: &ClaimRequest, now: Timestamp) -> Option<EpochSeconds> {
    request.retention.expiry(now, request.lease_until + request.skew)
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
