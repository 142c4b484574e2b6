//! How a message ended, and what its queue is to do with it.

use std::fmt;

use crate::protocol::{Fingerprint, Held, Output, RecordId, Timestamp};
use crate::telemetry::Count;

/// How one message ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How.
    pub ending: Ending,
    /// The digest that stands for the key; `None` if there was no key.
    pub id: Option<RecordId>,
    /// The job's name as the message gave it.
    pub job: Option<String>,
    /// The claim's fencing token.
    pub token: Option<u64>,
    /// Which attempt it was.
    pub attempt: Option<u32>,
    /// What went wrong; capped, without the key.
    pub error: Option<String>,
}

/// The ways a message ends.
#[derive(Clone, Debug)]
pub enum Ending {
    /// The job ran and its completion is recorded, with this answer.
    Completed(Output),
    /// It was completed before, with this answer.
    Replayed(Output),
    /// A notification that asks for nothing.
    Ignored,
    /// It failed and is due again.
    Released(Timestamp),
    /// It had failed before and is not due yet.
    Later(Timestamp),
    /// Another attempt is believed to be running until then.
    Busy(Timestamp),
    /// There was no time left to begin.
    NotStarted,
    /// It failed for good, now.
    Failed(Box<Held>),
    /// An effect's outcome cannot be known, as found now.
    Unknown(Box<Held>),
    /// A copy of a message whose job had failed; its place in quarantine is not yet certain.
    FailedBefore(Box<Held>),
    /// A copy of a message whose job had failed and is in quarantine.
    FailedAndQuarantined,
    /// Its key was used with another payload.
    Mismatch {
        /// Of the payload that was used first.
        first: Option<Fingerprint>,
        /// Of this one.
        given: Option<Fingerprint>,
    },
    /// It cannot be run at all: why.
    Undecodable(String),
    /// The claim was lost to a successor before it could be settled.
    LostLease,
    /// The handler could not be stopped in time; nothing is known.
    Abandoned,
    /// The store did not say.
    StoreError,
}

/// Why a message is in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The job failed for good.
    Failed,
    /// An effect's outcome cannot be known.
    Unknown,
    /// The key was used with another payload.
    Mismatch,
    /// The message cannot be run.
    Undecodable,
}

impl Cause {
    /// What a message that is in quarantine for it counts as.
    pub(crate) fn count(self) -> Count {
        match self {
            Self::Failed => Count::QuarantinedFailed,
            Self::Unknown => Count::QuarantinedUnknown,
            Self::Mismatch => Count::QuarantinedMismatch,
            Self::Undecodable => Count::QuarantinedUndecodable,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Mismatch => "mismatch",
            Self::Undecodable => "undecodable",
        })
    }
}

/// What a queue is to do with a message.
#[derive(Clone, Debug)]
pub enum Disposition {
    /// Delete it.
    Ack,
    /// Deliver it again: at this time, or whenever its visibility timeout ends.
    Retry(Option<Timestamp>),
    /// Put it where a person finds it, then delete it.
    Quarantine {
        /// Why.
        cause: Cause,
        /// The record to mark once it has arrived there.
        mark: Option<Box<Held>>,
    },
}

impl Outcome {
    /// An ending of a message that has no record.
    pub fn of(ending: Ending) -> Self {
        Self { ending, id: None, job: None, token: None, attempt: None, error: None }
    }

    /// What the queue is to do. `now` is when a message that was not started is worth trying.
    pub fn disposition(&self, now: Timestamp) -> Disposition {
        let quarantine = |cause, mark: Option<&Held>| Disposition::Quarantine {
            cause,
            mark: mark.cloned().map(Box::new),
        };
        match &self.ending {
            Ending::Completed(_)
            | Ending::Replayed(_)
            | Ending::Ignored
            | Ending::FailedAndQuarantined => Disposition::Ack,
            Ending::Released(at) | Ending::Later(at) | Ending::Busy(at) => {
                Disposition::Retry(Some(*at))
            }
            Ending::NotStarted => Disposition::Retry(Some(now)),
            Ending::LostLease | Ending::Abandoned | Ending::StoreError => Disposition::Retry(None),
            Ending::Failed(held) | Ending::FailedBefore(held) => {
                quarantine(Cause::Failed, Some(held))
            }
            Ending::Unknown(held) => quarantine(Cause::Unknown, Some(held)),
            Ending::Mismatch { .. } => quarantine(Cause::Mismatch, None),
            Ending::Undecodable(_) => quarantine(Cause::Undecodable, None),
        }
    }

    /// Whether it is not tried again by itself, and this attempt has not completed it.
    pub(super) fn has_ended_otherwise(&self) -> bool {
        matches!(
            self.ending,
            Ending::Replayed(_)
                | Ending::Failed(_)
                | Ending::FailedBefore(_)
                | Ending::FailedAndQuarantined
                | Ending::Unknown(_)
                | Ending::Mismatch { .. }
                | Ending::Undecodable(_)
        )
    }

    /// What it counts as, if it is counted.
    pub(super) fn count(&self) -> Option<Count> {
        match &self.ending {
            Ending::Completed(_) => Some(Count::Completed),
            Ending::Replayed(_) => Some(Count::Replayed),
            Ending::Released(_) => Some(Count::Retried),
            Ending::Busy(_) => Some(Count::Busy),
            Ending::Failed(_) => Some(Count::Failed),
            Ending::Unknown(_) => Some(Count::Unknown),
            Ending::LostLease => Some(Count::LostLease),
            Ending::StoreError => Some(Count::StoreError),
            Ending::Ignored
            | Ending::Later(_)
            | Ending::NotStarted
            | Ending::FailedBefore(_)
            | Ending::FailedAndQuarantined
            | Ending::Mismatch { .. }
            | Ending::Undecodable(_)
            | Ending::Abandoned => None,
        }
    }

    /// The ending's name in logs and traces.
    pub fn name(&self) -> &'static str {
        match &self.ending {
            Ending::Completed(_) => "completed",
            Ending::Replayed(_) => "replayed",
            Ending::Ignored => "ignored",
            Ending::Released(_) => "released",
            Ending::Later(_) => "later",
            Ending::Busy(_) => "busy",
            Ending::NotStarted => "not-started",
            Ending::Failed(_) => "failed",
            Ending::Unknown(_) => "unknown",
            Ending::FailedBefore(_) | Ending::FailedAndQuarantined => "failed-before",
            Ending::Mismatch { .. } => "mismatch",
            Ending::Undecodable(_) => "undecodable",
            Ending::LostLease => "lost-lease",
            Ending::Abandoned => "abandoned",
            Ending::StoreError => "store-error",
        }
    }

    /// What a person is told: why, and what can be done.
    pub fn explanation(&self) -> String {
        match &self.ending {
            Ending::Mismatch { first, given } => {
                let show = |print: &Option<Fingerprint>| {
                    print.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
                };
                format!(
                    "the key was used before with another payload (fingerprint {} then, {} now); \
                     a new operation needs a new key",
                    show(first),
                    show(given)
                )
            }
            Ending::Undecodable(reason) => reason.clone(),
            _ => self.error.clone().unwrap_or_default(),
        }
    }
}
