//! Running again what has failed.

use super::{NotNow, write};
use crate::protocol::write::{ConditionalWrite, Field};
use crate::protocol::{ClaimId, Fingerprint, Record, Status, Timestamp};

/// A request to run a failed job anew.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Minted for this write.
    pub claim_id: ClaimId,
    /// Of the payload at hand, which a message brings again: the record holds none. `None` where
    /// the job compares nothing.
    pub fingerprint: Option<Fingerprint>,
}

/// Releases a failed job: due at once, with a budget anew. Its effects stand: what is done is not
/// done again, and what was refused for certain gets its next key.
pub fn replay(
    record: &Record,
    request: &Replay,
    now: Timestamp,
) -> Result<ConditionalWrite, NotNow> {
    if record.status != Status::Failed {
        return Err(NotNow::Status { is: record.status, wanted: "a failed one" });
    }
    if record.is_of_other(request.fingerprint.as_ref()) {
        return Err(NotNow::OtherPayload);
    }
    if let Some(effect) = record.open_intent() {
        return Err(NotNow::OpenIntent { effect: effect.to_owned() });
    }
    Ok(write(
        record,
        &request.claim_id,
        now,
        [
            Field::Status(Status::Released),
            Field::Attempt(0),
            Field::NotBefore(None),
            Field::Quarantine(None),
        ],
    ))
}
