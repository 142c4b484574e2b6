//! What is played with one key, told by the key itself: the worker has nothing else to go by when a
//! claim is written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares the scenarios, each with its name.
macro_rules! scenarios {
    ($($(#[$meta:meta])* $variant:ident = $name:literal,)+) => {
        /// What is played with a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub(crate) enum Scenario { $($(#[$meta])* #[serde(rename = $name)] $variant,)+ }

        impl Scenario {
            #[cfg(test)]
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }

        impl FromStr for Scenario {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($name => Ok(Self::$variant),)+ _ => Err(()) }
            }
        }
    };
}

scenarios! {
    /// Whether a worker in drill mode is there.
    Probe = "probe",
    /// The same message twice at once.
    TwiceAtOnce = "twice-at-once",
    /// Copies after the completion.
    CopiesLater = "copies-later",
    /// The worker dies with the claim written and nothing begun.
    KilledAfterClaim = "killed-after-claim",
    /// It dies with the request on its way.
    KilledInEffect = "killed-in-effect",
    /// It dies with the effect done and not recorded.
    KilledAfterEffect = "killed-after-effect",
    /// It dies with the completion written and the message not acknowledged.
    KilledAfterCommit = "killed-after-commit",
    /// A job of several visibility timeouts, and a copy in the middle.
    LongJob = "long-job",
    /// A worker stands still past its lease, another takes over, and the first one goes on.
    LateWorker = "late-worker",
    /// It fails until it is a dead letter, is mended, and redriven.
    Redrive = "redrive",
    /// The claim is written and its answer lost.
    LostClaim = "lost-claim",
    /// The completion is written and its answer lost.
    LostCompletion = "lost-completion",
    /// Another payload under the same key.
    Mismatch = "mismatch",
    /// An effect that may run once at most, with copies at once and later.
    AtMostOnce = "at-most-once",
    /// The worker dies in such an effect.
    KilledAtMostOnce = "killed-at-most-once",
    /// One of thousands.
    Load = "load",
}

/// Where a worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Point {
    AfterClaim,
    InEffect,
    AfterEffect,
    AfterCommit,
}

/// The write whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Write {
    Claim,
    Completion,
}

/// The guarantee of the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Effect {
    Keyed,
    AtMostOnce,
}

impl Scenario {
    /// Where the worker dies, the first time it gets there.
    pub const fn crash(self) -> Option<Point> {
        match self {
            Self::KilledAfterClaim => Some(Point::AfterClaim),
            Self::KilledInEffect | Self::KilledAtMostOnce => Some(Point::InEffect),
            Self::KilledAfterEffect => Some(Point::AfterEffect),
            Self::KilledAfterCommit => Some(Point::AfterCommit),
            _ => None,
        }
    }

    /// The write whose first answer is lost.
    pub const fn loses(self) -> Option<Write> {
        match self {
            Self::LostClaim => Some(Write::Claim),
            Self::LostCompletion => Some(Write::Completion),
            _ => None,
        }
    }

    /// Whether the first worker stands still before its completion, until another has taken over.
    pub const fn stalls(self) -> bool {
        matches!(self, Self::LateWorker)
    }

    /// Whether it fails until the ledger says that it is mended.
    pub const fn fails(self) -> bool {
        matches!(self, Self::Redrive)
    }

    pub const fn effect(self) -> Effect {
        match self {
            Self::AtMostOnce | Self::KilledAtMostOnce => Effect::AtMostOnce,
            _ => Effect::Keyed,
        }
    }

    /// Whether only its effect is put down: a thousand keys are to cost what a thousand jobs do.
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::Load)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A key of the drill: `RUN/SCENARIO/N`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DrillKey {
    pub run: String,
    pub scenario: Scenario,
    pub n: usize,
}

impl fmt::Display for DrillKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.scenario.as_str(), self.n)
    }
}

impl DrillKey {
    /// Its name within its run: `SCENARIO/N`.
    #[cfg(feature = "cli")]
    pub fn within_its_run(&self) -> String {
        format!("{}/{}", self.scenario, self.n)
    }
}

impl FromStr for DrillKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('/');
        let (Some(run), Some(scenario), Some(n), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let n = n.parse().map_err(drop)?;
        Ok(Self { run: run.to_owned(), scenario: scenario.parse()?, n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_is_played() {
        for scenario in Scenario::ALL {
            let key = DrillKey { run: "r1".to_owned(), scenario: *scenario, n: 7 };
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for wrong in ["", "r1", "r1/probe", "r1/nothing/1", "r1/probe/x", "r1/probe/1/2"] {
            assert_eq!(wrong.parse::<DrillKey>(), Err(()), "{wrong}");
        }
    }
}
