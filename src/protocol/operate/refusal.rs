//! Why a record is not changed.

use std::fmt;

use crate::protocol::{EffectState, Status, Timestamp};

/// What stands in the way of an operator's transition. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// The record is in another status than the verb is for.
    Status {
        /// The one it is in.
        is: Status,
        /// Those it would have to be in, in words.
        wanted: &'static str,
    },
    /// An attempt is believed to be running.
    Leased {
        /// When its lease and the clocks' margin are over.
        until: Timestamp,
    },
    /// A request that was begun may still take effect.
    UnderWay {
        /// When it no longer can.
        until: Timestamp,
    },
    /// An effect may have happened, and nobody has said whether it did.
    OpenIntent {
        /// Its name.
        effect: String,
    },
    /// The payload at hand is not the one that the key is bound to.
    OtherPayload,
    /// No effect of this name is recorded.
    NoSuchEffect {
        /// Those that are.
        recorded: Vec<String>,
    },
    /// The named effect's outcome is not in doubt.
    NotInDoubt {
        /// How far it came.
        state: EffectState,
    },
    /// What was not done must be said effect by effect.
    NameTheEffect {
        /// Those in doubt.
        in_doubt: Vec<String>,
    },
}

impl NotNow {
    /// When asking again may help, if time alone can.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Leased { until } | Self::UnderWay { until } => Some(*until),
            _ => None,
        }
    }
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { is, wanted } => write!(f, "it is {is}; this is for {wanted}"),
            Self::Leased { .. } => f.write_str("an attempt may be running under its lease"),
            Self::UnderWay { .. } => f.write_str("a request of it may still be under way"),
            Self::OpenIntent { effect } => {
                write!(f, "effect {effect:?} may have happened; find out, and resolve it first")
            }
            Self::OtherPayload => f.write_str(
                "its key is bound to another payload; give the one that was sent under it first",
            ),
            Self::NoSuchEffect { recorded } if recorded.is_empty() => {
                f.write_str("no effect of it is recorded; leave the effect out")
            }
            Self::NoSuchEffect { recorded } => {
                write!(f, "no such effect is recorded; there is {}", recorded.join(", "))
            }
            Self::NotInDoubt { state } => {
                write!(f, "that effect is not in doubt: it is recorded as {state}")
            }
            Self::NameTheEffect { in_doubt } => write!(
                f,
                "name the effect that was not done, as it gets a new key: {}",
                in_doubt.join(", ")
            ),
        }
    }
}

impl std::error::Error for NotNow {}
