//! What a job's table says of its effect, checked and made into a job: one file for each effect.

#[cfg(feature = "email")]
mod email;
mod http;
mod row;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::jobs_file::{Env, OF_EVERY_JOB};
use crate::handler::Job;
use crate::protocol::Retention;

pub(super) use http::header;

/// Reads an effect's own fields, and makes the job; or says everything that is wrong with them.
type Make = fn(Fields<'_>, &Common<'_>) -> Result<Job, Wrong>;

/// The effects of this build, by name.
const EFFECTS: &[(&str, Make)] = &[
    ("http", http::job),
    ("row", row::job),
    #[cfg(feature = "email")]
    ("email", email::job),
];

/// What is known of a guarantee that some effect gives.
const GUARANTEES: [&str; 5] =
    ["transactional", "keyed", "reconcile", "at-least-once", "at-most-once"];

/// What every job has, for its effect to look at.
pub(super) struct Common<'a> {
    pub name: &'a str,
    /// The effect's name.
    pub effect: &'a str,
    pub guarantee: Option<&'a str>,
    pub timeout: Option<Duration>,
    pub retention: Retention,
    pub env: Env<'a>,
    /// Where the jobs file lies.
    #[cfg_attr(not(feature = "email"), allow(dead_code, reason = "other effects read no files"))]
    pub folder: &'a Path,
}

/// An effect's own fields, not yet read.
pub(super) struct Fields<'i>(pub Spanned<DeTable<'i>>);

/// What is wrong with one field of a job's table.
pub(super) struct FieldFault {
    pub at: At,
    pub text: String,
}

/// Where a fault is.
pub(super) enum At {
    /// At a field of the job's table, or at the table if the field is not there.
    Field(&'static str),
    /// At this place of the file.
    Place(Range<usize>),
}

/// Everything that is wrong with a job's table.
#[derive(Default)]
pub(super) struct Wrong(pub Vec<FieldFault>);

/// Makes the job with the effect that is named.
pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    match EFFECTS.iter().find(|(name, _)| *name == common.effect) {
        Some((_, make)) => make(fields, common),
        None => {
            let text =
                format!("effect {:?} is not known; this version has {}", common.effect, known());
            Err(Wrong::one("effect", text))
        }
    }
}

/// The effects of this build, for an error's text.
pub(super) fn known() -> String {
    listed(EFFECTS.iter().map(|(name, _)| format!("{name:?}")).collect(), "and")
}

impl Fields<'_> {
    /// Reads them as the effect's table.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, Wrong> {
        T::deserialize(Deserializer::from(self.0)).map_err(|error| {
            let mut wrong = Wrong::unreadable(error);
            for fault in &mut wrong.0 {
                if fault.text.starts_with("unknown field") {
                    fault.text += &format!("; and every job has {}", OF_EVERY_JOB.join(", "));
                }
            }
            wrong
        })
    }
}

impl Common<'_> {
    /// The guarantee, which must be one of those the effect gives: its name, its value, and what
    /// it means there.
    pub fn guarantee<G: Clone>(&self, gives: &[(&str, G, &str)]) -> Result<G, String> {
        let all = gives.iter().map(|(name, _, means)| format!("{name:?} ({means})")).collect();
        let (effect, gives_all) = (self.effect, listed(all, "or"));
        let Some(wanted) = self.guarantee else {
            return Err(format!(
                "no guarantee is named: say what may happen after a crash; the {effect} effect \
                 gives {gives_all}"
            ));
        };
        match gives.iter().find(|(name, ..)| *name == wanted) {
            Some((_, guarantee, _)) => Ok(guarantee.clone()),
            None if GUARANTEES.contains(&wanted) => Err(format!(
                "the {effect} effect cannot give guarantee {wanted:?}; it gives {gives_all}"
            )),
            None => Err(format!(
                "guarantee {wanted:?} is not known; the {effect} effect gives {gives_all}"
            )),
        }
    }
}

impl Wrong {
    pub fn one(field: &'static str, text: impl Into<String>) -> Self {
        let mut wrong = Self::default();
        wrong.say(field, text);
        wrong
    }

    /// What serde says.
    pub fn unreadable(error: toml::de::Error) -> Self {
        let (at, text) = (At::Place(error.span().unwrap_or(0..0)), error.message().to_owned());
        Self(vec![FieldFault { at, text }])
    }

    pub fn say(&mut self, field: &'static str, text: impl Into<String>) {
        self.0.push(FieldFault { at: At::Field(field), text: text.into() });
    }

    /// Keeps what is right, and remembers what is wrong.
    pub fn keep<T>(&mut self, field: &'static str, result: Result<T, String>) -> Option<T> {
        result.map_err(|text| self.say(field, text)).ok()
    }
}

/// `a, b and c`.
fn listed(mut items: Vec<String>, word: &str) -> String {
    match items.pop() {
        Some(last) if items.is_empty() => last,
        Some(last) => format!("{} {word} {last}", items.join(", ")),
        None => "nothing".to_owned(),
    }
}
