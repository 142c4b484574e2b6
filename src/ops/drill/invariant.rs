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

    /// What it says: of those with a number, what the list in `src/docs/testing.md` does.
    pub const fn says(self) -> &'static str {
        match self {
            Self::StagedOnce => "what is staged is done with the completion, once, or not at all",
            Self::KeyedOnce => {
                "a keyed effect goes out under one key with one request, and is done once; under a \
                 next key only after a recorded refusal"
            }
            Self::AtMostOnce => "an at-most-once effect is called once at most",
            Self::NoLoss => {
                "a message that is gone has a completed record, or is among the dead letters or on \
                 its way back"
            }
            Self::Fenced => {
                "no write lands that was decided on an older record; token and revision never go back"
            }
            Self::NoWedge => "every key comes to its end once nothing goes wrong any more",
            Self::CompletedStays => "what is completed stays so, and nothing runs under its key",
            Self::FirstPayload => "no payload but the first runs under a key",
            Self::OneAtATime => {
                "one handler at a time under a key, while clocks differ by less than the margin"
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_number_name_and_words_from_the_list_in_the_docs() {
        let listed = include_str!("../../docs/testing.md");
        for it in Invariant::ALL {
            if let Some(number) = it.number() {
                let row = format!("| {number} | {} | {} |\n", it.name(), it.says());
                assert!(listed.contains(&row), "{row}");
            }
        }
    }
}
