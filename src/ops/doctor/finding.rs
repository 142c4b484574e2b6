//! What a rule has found.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Loses, doubles or blocks work, or will at the first bad moment.
    Fault,
    /// Does so in rare cases, or costs time, money or sight.
    Warning,
    /// What decides it is not known here.
    CannotJudge,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// Which rule; it stays the same over versions.
    pub code: &'static str,
    /// In which deployment.
    pub deployment: String,
    /// What is so; or why it cannot be judged.
    pub what: String,
    /// Why it bites.
    pub why: &'static str,
    /// A command or a setting.
    pub fix: String,
}

/// What a rule says: what is so, and how to put it right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub what: String,
    pub fix: String,
}

impl Said {
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }
}
