//! Forgetting that a key was ever used.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{NotNow, write};
use crate::protocol::write::{ConditionalWrite, Field};
use crate::protocol::{ClaimId, EpochSeconds, Record, Status, Timestamp};

/// A request to forget a record.
#[derive(Clone, Debug)]
pub struct Forget {
    /// Minted for this write.
    pub claim_id: ClaimId,
    /// How far clocks may differ.
    pub skew: Duration,
}

/// Makes the key as good as new: its next message runs, whatever its payload, and under the
/// providers' first keys. What is left is an expired tombstone and never a hole: its token goes
/// on, and the writes of whoever held the record still lose.
pub fn forget(
    record: &Record,
    request: &Forget,
    now: Timestamp,
) -> Result<ConditionalWrite, NotNow> {
    let until = record.lease_until + request.skew;
    if record.status == Status::Claimed && now < until {
        return Err(NotNow::Leased { until });
    }
    if record.status == Status::Unknown {
        let wanted = "one whose outcome is known: resolve it first";
        return Err(NotNow::Status { is: record.status, wanted });
    }
    if let Some(effect) = record.open_intent() {
        return Err(NotNow::OpenIntent { effect: effect.to_owned() });
    }
    // Past also by a clock that is behind. A worker whose clock is further behind finds it due and
    // empty, which comes to the same.
    let past = now - request.skew - request.skew;
    Ok(write(
        record,
        &request.claim_id,
        now,
        [
            Field::Status(Status::Released),
            Field::Attempt(0),
            Field::LeaseUntil(now),
            Field::NotBefore(None),
            Field::Fingerprint(None),
            Field::UnrecordedSince(None),
            Field::Effects(BTreeMap::new()),
            Field::Output(None),
            Field::Error(None),
            Field::Quarantine(None),
            Field::MessageId(None),
            Field::ExpiresAt(Some(EpochSeconds::from_secs(past.millis() / 1000))),
        ],
    ))
}
