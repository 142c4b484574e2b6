//! Running again what has failed.

use super::{NotNow, write};
use crate::protocol::claim::differs;
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
    match record.status {
        Status::Failed => {}
        // A message may bring no new payload to what waits for one, either.
        is => return Err(NotNow::Status { is, wanted: "a failed one" }),
    }
    same_payload(record, request.fingerprint.as_ref())?;
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

/// Whether a payload is the one that the record's key is bound to.
pub(super) fn same_payload(record: &Record, given: Option<&Fingerprint>) -> Result<(), NotNow> {
    match differs(record.fingerprint.as_ref(), given) {
        true => Err(NotNow::OtherPayload),
        false => Ok(()),
    }
}
