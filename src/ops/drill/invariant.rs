//! What must hold, by the numbers and names it has in the protocol.

use serde::{Serialize, Serializer};

use crate::drill::DrillKey;

/// Faults of an invariant that are told in words.
const TOLD: usize = 5;

/// An invariant that a drill can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Invariant {
    StagedOnce,
    KeyedOnce,
    AtMostOnce,
    NoLoss,
    Fenced,
    NoWedge,
    CompletedStays,
    FirstPayload,
    OneAtATime,
    OwnWrites,
    Played,
}

impl Invariant {
    pub const ALL: [Self; 11] = [
        Self::StagedOnce,
        Self::KeyedOnce,
        Self::AtMostOnce,
        Self::NoLoss,
        Self::Fenced,
        Self::NoWedge,
        Self::CompletedStays,
        Self::FirstPayload,
        Self::OneAtATime,
        Self::OwnWrites,
        Self::Played,
    ];

    /// Its number in the protocol's list, if it is one of that.
    pub const fn number(self) -> Option<u8> {
        match self {
            Self::StagedOnce => Some(1),
            Self::KeyedOnce => Some(2),
            Self::AtMostOnce => Some(3),
            Self::NoLoss => Some(5),
            Self::Fenced => Some(6),
            Self::NoWedge => Some(7),
            Self::CompletedStays => Some(8),
            Self::FirstPayload => Some(9),
            Self::OneAtATime => Some(10),
            Self::OwnWrites | Self::Played => None,
        }
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StagedOnce => "staged once",
            Self::KeyedOnce => "keyed once",
            Self::AtMostOnce => "at most once",
            Self::NoLoss => "no loss",
            Self::Fenced => "fenced",
            Self::NoWedge => "no wedge",
            Self::CompletedStays => "completed stays",
            Self::FirstPayload => "first payload only",
            Self::OneAtATime => "one at a time",
            Self::OwnWrites => "own writes known",
            Self::Played => "played",
        }
    }

    /// What it says.
    pub const fn says(self) -> &'static str {
        match self {
            Self::StagedOnce => "a staged write is done with the completion, once, or not at all",
            Self::KeyedOnce => "the provider sees one key and one request, and does it once",
            Self::AtMostOnce => "an effect that may run once at most was called once at most",
            Self::NoLoss => "every message ends done or among the dead letters",
            Self::Fenced => "one completion per key; a late worker completes nothing",
            Self::NoWedge => "every key comes to the end its scenario has",
            Self::CompletedStays => "nothing runs under a key that is done",
            Self::FirstPayload => "another payload under a key never runs, and is quarantined",
            Self::OneAtATime => "no second worker runs before lease and margin are over",
            Self::OwnWrites => "a write that landed unanswered counts, and is not done again",
            Self::Played => "what was to go wrong did go wrong",
        }
    }
}

/// Whether one held.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    /// Its number in the protocol, if it has one.
    pub number: Option<u8>,
    pub name: &'static str,
    pub says: &'static str,
    pub holds: bool,
    /// How many keys it was put to.
    pub keys: usize,
    /// How many broke it.
    pub broken: usize,
    /// How each of those did; the first of them are told.
    #[serde(serialize_with = "told")]
    pub faults: Vec<(DrillKey, String)>,
}

impl Judged {
    /// The first faults, in words.
    pub fn told(&self) -> impl Iterator<Item = String> {
        words(&self.faults)
    }
}

fn words(faults: &[(DrillKey, String)]) -> impl Iterator<Item = String> {
    let told = faults.iter().take(TOLD);
    told.map(|(key, fault)| format!("{}: {fault}", key.within_its_run()))
}

fn told<S: Serializer>(faults: &[(DrillKey, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(words(faults))
}
