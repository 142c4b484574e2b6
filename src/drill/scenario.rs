//! What is played with one key, told by the key itself: the worker has nothing else to go by when a
//! claim is written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares the scenarios, each with its name and what it plays, in the order in which they are shown.
macro_rules! scenarios {
    ($($variant:ident = $name:literal, $says:literal;)+) => {
        /// What is played with a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub(crate) enum Scenario { $(#[serde(rename = $name)] $variant,)+ }

        impl Scenario {
            #[cfg(any(test, feature = "cli"))]
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it plays.
            #[cfg(feature = "cli")]
            pub const fn says(self) -> &'static str {
                match self { $(Self::$variant => $says,)+ }
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
    Probe = "probe", "is a worker in drill mode there";
    TwiceAtOnce = "twice-at-once", "the same message twice at once";
    CopiesLater = "copies-later", "three copies after it is done";
    KilledAfterClaim = "killed-after-claim", "the worker dies, claim written and nothing begun";
    KilledInEffect = "killed-in-effect", "the worker dies, its request on the way";
    KilledAfterEffect = "killed-after-effect", "the worker dies, effect done and not recorded";
    KilledAfterCommit = "killed-after-commit", "the worker dies, all done and not acknowledged";
    LongJob = "long-job", "the job outlasts its visibility, a copy comes meanwhile";
    LateWorker = "late-worker", "a worker stands still past its lease, and goes on";
    Redrive = "redrive", "fails to the dead letters, is mended and redriven";
    LostClaim = "lost-claim", "the answer to the claim is lost";
    LostCompletion = "lost-completion", "the answer to the completion is lost";
    Mismatch = "mismatch", "another payload under the same key";
    AtMostOnce = "at-most-once", "an at-most-once effect, copies at once and later";
    KilledAtMostOnce = "killed-at-most-once", "the worker dies in an at-most-once effect";
    Load = "load", "many messages, each several times";
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

#[cfg(feature = "cli")]
impl Point {
    pub const fn says(self) -> &'static str {
        match self {
            Self::AfterClaim => "the worker dies after the claim",
            Self::InEffect => "the worker dies in the effect",
            Self::AfterEffect => "the worker dies after the effect",
            Self::AfterCommit => "the worker dies after the commit",
        }
    }
}

/// The write whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Write {
    Claim,
    Completion,
}

#[cfg(feature = "cli")]
impl Write {
    pub const fn says(self) -> &'static str {
        match self {
            Self::Claim => "the answer to the claim is lost",
            Self::Completion => "the answer to the completion is lost",
        }
    }
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

    /// Whether it is a scene of the play, and no probe or load.
    #[cfg(feature = "cli")]
    pub const fn is_scene(self) -> bool {
        !matches!(self, Self::Probe | Self::Load)
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
