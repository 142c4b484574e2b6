//! The environment and the jobs file, with every fault named before anything starts.
//!
#![doc = include_str!("../docs/effects.md")]

#[cfg(feature = "jobs-file")]
mod effect;
#[cfg(feature = "jobs-file")]
mod expression;
#[cfg(feature = "jobs-file")]
mod fault;
#[cfg(feature = "jobs-file")]
mod fingerprint;
#[cfg(feature = "jobs-file")]
mod jobs_file;
#[cfg(feature = "jobs-file")]
mod message;
#[cfg(feature = "jobs-file")]
mod secret;
#[cfg(feature = "lambda")]
mod settings;
#[cfg(feature = "lambda")]
mod store;

#[cfg(feature = "jobs-file")]
pub use fault::Faults;
#[cfg(feature = "lambda")]
pub use settings::{MetricsSetting, RelaySetting, Settings, StoreSetting, StoreUrl};

#[cfg(feature = "jobs-file")]
use std::path::Path;

#[cfg(feature = "jobs-file")]
use crate::handler::Router;

#[cfg(feature = "jobs-file")]
impl Router {
    /// The jobs declared in a jobs file, and how messages name them. Secrets in the
    /// environment are read now, others when a job first needs them.
    ///
    /// The error names every fault: file, line, and what to write instead.
    pub fn from_jobs_file(path: impl AsRef<Path>) -> Result<Self, Faults> {
        Self::from_jobs_file_in(path, &|name| std::env::var(name).ok())
    }

    /// The same where jobs are looked at and none runs: secrets in the environment need not be there.
    pub fn from_jobs_file_without_secrets(path: impl AsRef<Path>) -> Result<Self, Faults> {
        Self::from_jobs_file_in(path, &|_| Some("not:needed".to_owned()))
    }

    /// The same, with the environment given.
    pub fn from_jobs_file_in(
        path: impl AsRef<Path>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Faults> {
        jobs_file::load(path.as_ref(), env)
    }
}

#[cfg(all(any(test, fuzzing), feature = "jobs-file"))]
#[path = "fuzz_tests.rs"]
pub(crate) mod fuzz;
