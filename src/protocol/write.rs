//! The one kind of write there is: conditional on what was seen.

use std::collections::BTreeMap;
use std::mem::discriminant;

use super::{
    ClaimId, EffectRecord, EpochSeconds, FencingToken, Fingerprint, Output, Quarantine, Record,
    RecordId, Rev, Status, Timestamp,
};

/// What must hold for a write to land. Time is never part of it: instants are compared in the
/// protocol, so a store only needs compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expect {
    /// There is no record.
    Absent,
    /// The record was last written by this claim at this revision.
    At {
        /// The claim that wrote last.
        claim_id: ClaimId,
        /// The revision it wrote.
        rev: Rev,
    },
}

impl Expect {
    /// Whether `current` is what this condition asks for.
    pub fn holds(&self, current: Option<&Record>) -> bool {
        match (self, current) {
            (Self::Absent, None) => true,
            (Self::At { claim_id, rev }, Some(record)) => {
                record.claim_id == *claim_id && record.rev == *rev
            }
            _ => false,
        }
    }
}

/// A write of one record and its condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConditionalWrite {
    /// The record written.
    pub id: RecordId,
    /// What must hold.
    pub expect: Expect,
    /// What is written.
    pub change: Change,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Makes the record.
    Create(Box<Record>),
    /// Sets these fields and leaves the rest, attributes of a later version included.
    Update(Vec<Field>),
}

/// One field's new value; `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each names the field of `Record` it sets")]
pub enum Field {
    Status(Status),
    ClaimId(ClaimId),
    Token(FencingToken),
    Rev(Rev),
    Attempt(u32),
    LeaseUntil(Timestamp),
    NotBefore(Option<Timestamp>),
    Fingerprint(Option<Fingerprint>),
    UnrecordedSince(Option<Timestamp>),
    Effects(BTreeMap<String, EffectRecord>),
    Output(Option<Output>),
    Error(Option<String>),
    Quarantine(Option<Quarantine>),
    CreatedAt(Timestamp),
    UpdatedAt(Timestamp),
    MessageId(Option<String>),
    ExpiresAt(Option<EpochSeconds>),
}

impl Field {
    /// Every field of `record`; its identity (id, namespace, job, key) is none of them.
    pub fn all_of(record: &Record) -> [Self; 17] {
        [
            Self::Status(record.status),
            Self::ClaimId(record.claim_id.clone()),
            Self::Token(record.token),
            Self::Rev(record.rev),
            Self::Attempt(record.attempt),
            Self::LeaseUntil(record.lease_until),
            Self::NotBefore(record.not_before),
            Self::Fingerprint(record.fingerprint.clone()),
            Self::UnrecordedSince(record.unrecorded_since),
            Self::Effects(record.effects.clone()),
            Self::Output(record.output.clone()),
            Self::Error(record.error.clone()),
            Self::Quarantine(record.quarantine),
            Self::CreatedAt(record.created_at),
            Self::UpdatedAt(record.updated_at),
            Self::MessageId(record.message_id.clone()),
            Self::ExpiresAt(record.expires_at),
        ]
    }

    /// Sets the field on `record`.
    pub fn apply(&self, record: &mut Record) {
        match self.clone() {
            Self::Status(v) => record.status = v,
            Self::ClaimId(v) => record.claim_id = v,
            Self::Token(v) => record.token = v,
            Self::Rev(v) => record.rev = v,
            Self::Attempt(v) => record.attempt = v,
            Self::LeaseUntil(v) => record.lease_until = v,
            Self::NotBefore(v) => record.not_before = v,
            Self::Fingerprint(v) => record.fingerprint = v,
            Self::UnrecordedSince(v) => record.unrecorded_since = v,
            Self::Effects(v) => record.effects = v,
            Self::Output(v) => record.output = v,
            Self::Error(v) => record.error = v,
            Self::Quarantine(v) => record.quarantine = v,
            Self::CreatedAt(v) => record.created_at = v,
            Self::UpdatedAt(v) => record.updated_at = v,
            Self::MessageId(v) => record.message_id = v,
            Self::ExpiresAt(v) => record.expires_at = v,
        }
    }
}

impl ConditionalWrite {
    /// The record after this write lands on `current`; `None` if its condition does not hold.
    pub fn apply(&self, current: Option<&Record>) -> Option<Record> {
        if !self.expect.holds(current) {
            return None;
        }
        match (&self.change, current) {
            (Change::Create(record), _) => Some(Record::clone(record)),
            (Change::Update(fields), Some(record)) => {
                let mut record = record.clone();
                fields.iter().for_each(|field| field.apply(&mut record));
                Some(record)
            }
            (Change::Update(_), None) => None,
        }
    }

    /// This write and the next one of the same claim, in one.
    #[must_use]
    pub fn then(self, next: &Self) -> Self {
        let Change::Update(more) = &next.change else {
            return self;
        };
        // One write, one revision.
        let more = more.iter().filter(|field| !matches!(field, Field::Rev(_)));
        let change = match self.change {
            Change::Create(mut record) => {
                more.for_each(|field| field.apply(&mut record));
                Change::Create(record)
            }
            Change::Update(mut fields) => {
                for field in more {
                    fields.retain(|earlier| discriminant(earlier) != discriminant(field));
                    fields.push(field.clone());
                }
                Change::Update(fields)
            }
        };
        Self { change, ..self }
    }

    /// The lease that it sets, if it sets one.
    pub fn lease_until(&self) -> Option<Timestamp> {
        match &self.change {
            Change::Create(record) => Some(record.lease_until),
            Change::Update(fields) => fields.iter().find_map(|field| match field {
                Field::LeaseUntil(until) => Some(*until),
                _ => None,
            }),
        }
    }

    /// Whether `current` already shows exactly what this write says.
    pub fn already_in(&self, current: &Record) -> bool {
        match &self.change {
            Change::Create(record) => **record == *current,
            Change::Update(fields) => {
                let mut again = current.clone();
                fields.iter().for_each(|field| field.apply(&mut again));
                again == *current
            }
        }
    }
}
