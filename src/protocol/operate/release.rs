//! Letting go of what a dead attempt holds.

use std::time::Duration;

use super::{NotNow, write};
use crate::protocol::claim::unrecorded_since;
use crate::protocol::write::{ConditionalWrite, Field};
use crate::protocol::{ClaimId, Record, Status, Timestamp};

/// A request to release a claim.
#[derive(Clone, Debug)]
pub struct Release {
    /// Minted for this write.
    pub claim_id: ClaimId,
    /// How far clocks may differ.
    pub skew: Duration,
}

/// Releases a claim whose lease is over: its job is due at once, for one more attempt even where
/// the budget is spent. Its effects stand, an open intent among them.
pub fn release(
    record: &Record,
    request: &Release,
    now: Timestamp,
) -> Result<ConditionalWrite, NotNow> {
    if record.status != Status::Claimed {
        return Err(NotNow::Status { is: record.status, wanted: "a claimed one" });
    }
    let until = record.lease_until + request.skew;
    if now < until {
        return Err(NotNow::Leased { until });
    }
    Ok(write(
        record,
        &request.claim_id,
        now,
        [
            Field::Status(Status::Released),
            Field::NotBefore(None),
            // The attempt died: what it began after its last write nobody knows.
            Field::UnrecordedSince(unrecorded_since(record)),
        ],
    ))
}
