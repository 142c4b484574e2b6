//! What becomes of a message by what was decided, and which row of the claim table decided it.

use onlyonce::protocol::{Claim, ClaimRequest, Held, Output, Quarantine, Record, Status};
use onlyonce::service::{Disposition, Ending, Outcome};

use crate::attempt::{Answer, Ended};
use crate::config::{stamp, tick};
use crate::coverage::Point;
use crate::interned::{Interned, Ref};

/// What is to become of a message.
#[derive(Clone, Copy)]
pub enum Told {
    Answer(Answer),
    Quarantine(Option<Ref<Held>>),
}

/// Where a claim that was not taken leaves a message, as `service::attempt::not_claimed` says.
pub fn refusal(refused: Claim, request: &ClaimRequest) -> Ending {
    match refused {
        Claim::Replay(record) => Ending::Replayed(record.output.unwrap_or(Output::Omitted)),
        Claim::Mismatch(record) => Ending::Mismatch { first: record.fingerprint, given: None },
        Claim::Later { retry_at, .. } => Ending::Later(retry_at),
        Claim::Busy { retry_at, .. } => Ending::Busy(retry_at),
        Claim::Parked(record) => {
            let held = Box::new(Held::of(&record));
            match (record.status, record.quarantine) {
                (Status::Unknown, _) => Ending::Unknown(held),
                (_, Some(Quarantine::Sent)) if request.is_stray(&record) => {
                    Ending::FailedAndQuarantined
                }
                _ => Ending::FailedBefore(held),
            }
        }
        Claim::Take { .. } | Claim::Spend { .. } | Claim::Held(_) => Ending::StoreError,
    }
}

/// What is to become of a message that ended so.
pub fn told(ending: Ending, now: i16) -> Told {
    match Outcome::of(ending).disposition(stamp(now)) {
        Disposition::Ack => Told::Answer(Answer::Ack),
        Disposition::Retry(when) => Told::Answer(Answer::Retry(when.map(tick))),
        Disposition::Quarantine { mark, .. } => {
            Told::Quarantine(mark.map(|parked| parked.interned()))
        }
    }
}

/// The same once an attempt's end is written.
pub fn told_of(ended: Ended, held: Ref<Held>, now: i16) -> Told {
    let held = || Box::new(held.get().clone());
    let ending = match ended {
        Ended::Completed => return Told::Answer(Answer::Ack),
        Ended::Released(at) => return Told::Answer(Answer::Retry(Some(at))),
        Ended::Failed => Ending::Failed(held()),
        Ended::Unknown => Ending::Unknown(held()),
    };
    told(ending, now)
}

/// The row of the claim table that a decision came from.
pub fn row(record: Option<&Record>, decision: &Claim) -> Point {
    let Some(record) = record else { return Point::Create };
    match decision {
        Claim::Held(_) => Point::Held,
        Claim::Mismatch(_) => Point::Mismatch,
        Claim::Replay(_) => Point::Replay,
        Claim::Parked(_) if record.status == Status::Unknown => Point::ParkedUnknown,
        Claim::Parked(_) if record.quarantine == Some(Quarantine::Sent) => Point::StraySent,
        Claim::Parked(_) => Point::StrayPending,
        Claim::Later { .. } => Point::Later,
        Claim::Busy { .. } => Point::Busy,
        Claim::Spend { parked, .. } if parked.status == Status::Unknown => Point::SpentUnknown,
        Claim::Spend { .. } => Point::SpentFailed,
        Claim::Take { write, .. } => {
            let taken = write.apply(Some(record)).expect("it was decided on this record");
            match record.status {
                _ if taken.created_at != record.created_at => Point::Expired,
                Status::Failed => Point::Reopened,
                Status::Released => Point::Due,
                _ => Point::TakenOver,
            }
        }
    }
}
