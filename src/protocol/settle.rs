//! Settling: every write of a claim carries the claim and the revision it was decided on, so a
//! late owner cannot complete, release or delete anything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::has_open_intent;
use super::write::{Change, ConditionalWrite, Expect, Field};
use super::{
    ClaimId, EffectRecord, EpochSeconds, FencingToken, MAX_RETRY_AFTER, Output, Quarantine, Record,
    RecordId, Retention, RetryPolicy, Rev, Status, Timestamp,
};

/// A claim in hand: what the next write of this attempt is conditioned on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The record.
    pub id: RecordId,
    /// This attempt's claim.
    pub claim_id: ClaimId,
    /// This claim's fencing token.
    pub token: FencingToken,
    /// The revision of this claim's last write.
    pub rev: Rev,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Until when the claim is believed.
    pub lease_until: Timestamp,
    /// Since when earlier attempts may have begun effects that are not recorded.
    pub unrecorded_since: Option<Timestamp>,
    /// The effects of this and earlier attempts.
    pub effects: BTreeMap<String, EffectRecord>,
}

impl Held {
    /// The claim that `record` shows.
    pub fn of(record: &Record) -> Self {
        Self {
            id: record.id.clone(),
            claim_id: record.claim_id.clone(),
            token: record.token,
            rev: record.rev,
            attempt: record.attempt,
            lease_until: record.lease_until,
            unrecorded_since: record.unrecorded_since,
            effects: record.effects.clone(),
        }
    }

    /// The claim after one more of its writes landed.
    #[must_use]
    pub fn advanced(mut self) -> Self {
        self.rev = self.rev.next();
        self
    }

    fn write(&self, now: Timestamp, mut fields: Vec<Field>) -> ConditionalWrite {
        fields.push(Field::UpdatedAt(now));
        self.write_of(fields)
    }

    fn write_of(&self, mut fields: Vec<Field>) -> ConditionalWrite {
        fields.push(Field::Rev(self.rev.next()));
        ConditionalWrite {
            id: self.id.clone(),
            expect: Expect::At { claim_id: self.claim_id.clone(), rev: self.rev },
            change: Change::Update(fields),
        }
    }
}

/// How an attempt went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Worth trying again, after the policy's wait.
    Retryable,
    /// Worth trying again after this long: a provider's `Retry-After`.
    RetryAfter(Duration),
    /// Trying again cannot help.
    Terminal,
    /// The attempt's time was over; the handler was stopped.
    Cancelled,
    /// An effect's outcome cannot be known.
    Unknown,
}

/// Where an attempt ends once its settling write lands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, with this answer.
    Completed(Output),
    /// To be tried again.
    Released {
        /// When it is due.
        retry_at: Timestamp,
    },
    /// Given up; the message goes to quarantine.
    Failed,
    /// Parked for a person; the message goes to quarantine.
    Unknown,
}

/// Completes the job. A handler that passes over an open intent of an earlier attempt cannot know
/// what became of it: that is `Unknown`, not done.
pub fn complete(
    held: &Held,
    output: Output,
    retention: Retention,
    now: Timestamp,
) -> (ConditionalWrite, Verdict) {
    if has_open_intent(&held.effects) {
        let error = "completed with an effect whose outcome is not known".to_owned();
        return (park(held, Status::Unknown, error, retention, now), Verdict::Unknown);
    }
    let mut fields = vec![
        Field::Status(Status::Completed),
        Field::Output(Some(output.clone())),
        Field::Error(None),
        Field::ExpiresAt(retention.expiry(now, now)),
    ];
    fields.extend(effects(held));
    (held.write(now, fields), Verdict::Completed(output))
}

/// Records a failed attempt. `error` is kept as given: cap and redact it before. `jitter` is in
/// 0..1.
pub fn fail(
    held: &Held,
    failure: &Failure,
    error: String,
    policy: (&RetryPolicy, Retention),
    now: Timestamp,
    jitter: f64,
) -> (ConditionalWrite, Verdict) {
    let (retry, retention) = policy;
    let is_open = has_open_intent(&held.effects);
    let wait = match failure {
        Failure::Unknown => None,
        // Stopped in the middle of an effect that must not run twice.
        Failure::Cancelled if is_open => None,
        Failure::Terminal => None,
        _ if retry.is_spent(held.attempt) => None,
        Failure::RetryAfter(wait) => Some((*wait).min(MAX_RETRY_AFTER)),
        Failure::Retryable | Failure::Cancelled => Some(retry.delay(held.attempt, jitter)),
    };
    let Some(wait) = wait else {
        let is_unknown = is_open || *failure == Failure::Unknown;
        let (status, verdict) = if is_unknown {
            (Status::Unknown, Verdict::Unknown)
        } else {
            (Status::Failed, Verdict::Failed)
        };
        return (park(held, status, error, retention, now), verdict);
    };
    let retry_at = now + wait;
    let mut fields = vec![
        Field::Status(Status::Released),
        Field::NotBefore(Some(retry_at)),
        Field::Error(Some(error)),
        Field::ExpiresAt(expiry(held, retention, now, retry_at)),
    ];
    fields.extend(effects(held));
    (held.write(now, fields), Verdict::Released { retry_at })
}

/// Parked for a person, its message still to be sent to quarantine: a crash before that is known
/// leaves `pending`, and the next copy of the message sends it.
fn park(
    held: &Held,
    status: Status,
    error: String,
    retention: Retention,
    now: Timestamp,
) -> ConditionalWrite {
    let expires_at =
        if status == Status::Unknown { None } else { expiry(held, retention, now, now) };
    let mut fields = vec![
        Field::Status(status),
        Field::Error(Some(error)),
        Field::Quarantine(Some(Quarantine::Pending)),
        Field::ExpiresAt(expires_at),
    ];
    fields.extend(effects(held));
    held.write(now, fields)
}

/// A record with an open intent never expires: the intent must be found again however late.
fn expiry(
    held: &Held,
    retention: Retention,
    now: Timestamp,
    not_before: Timestamp,
) -> Option<EpochSeconds> {
    if has_open_intent(&held.effects) { None } else { retention.expiry(now, not_before) }
}

fn effects(held: &Held) -> Option<Field> {
    (!held.effects.is_empty()).then(|| Field::Effects(held.effects.clone()))
}

/// Writes the effects of this attempt so far, so that a crash after this does not run them again.
/// With an open intent among them the record no longer expires.
pub fn keep_effects(held: &Held, now: Timestamp) -> ConditionalWrite {
    let never = has_open_intent(&held.effects).then_some(Field::ExpiresAt(None));
    held.write(now, effects(held).into_iter().chain(never).collect())
}

/// Extends the lease of a running attempt, and writes its effects so far: what is not recorded by
/// now can only have begun later. The record outlives the lease and `skew`, as it does when it is
/// claimed.
pub fn renew(
    held: &Held,
    lease_until: Timestamp,
    (retention, skew): (Retention, Duration),
    now: Timestamp,
) -> ConditionalWrite {
    let expires_at = expiry(held, retention, now, lease_until + skew);
    let fields = [Field::LeaseUntil(lease_until), Field::ExpiresAt(expires_at)];
    held.write(now, effects(held).into_iter().chain(fields).collect())
}

/// Notes that the message has arrived in quarantine, so that a stray copy does not send it again.
/// When the job failed stays as it was: the message may be redriven before this lands, and counts
/// as enqueued after the failure all the same.
pub fn mark_quarantined(parked: &Held) -> ConditionalWrite {
    parked.write_of(vec![Field::Quarantine(Some(Quarantine::Sent))])
}

/// What a conflict on a settling write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The write had landed and only its reply was lost.
    Applied,
    /// The claim is over. Its writes, staged ones included, did not happen and never will.
    LostLease,
}

/// Tells a lost reply from a lost lease, by what the record shows now.
pub fn resolve_conflict(write: &ConditionalWrite, current: Option<&Record>) -> Conflict {
    let Expect::At { claim_id, rev } = &write.expect else {
        return Conflict::LostLease;
    };
    match current {
        Some(record)
            if record.claim_id == *claim_id
                && record.rev == rev.next()
                && write.already_in(record) =>
        {
            Conflict::Applied
        }
        _ => Conflict::LostLease,
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
