//! The environment and the jobs file, with every fault named before anything starts.

mod effect;
mod expression;
mod fault;
mod fingerprint;
mod jobs_file;
mod message;
mod secret;
mod settings;

pub use fault::Faults;
pub use settings::{Settings, StoreSetting};

use std::path::Path;

use crate::handler::Router;

impl Router {
    /// The jobs declared in a jobs file, and how messages name them. Secrets in
    /// the environment are read now, others when a job first needs them.
    ///
    /// The error names every fault: file, line, and what to write instead.
    pub fn from_jobs_file(path: impl AsRef<Path>) -> Result<Self, Faults> {
        jobs_file::load(path.as_ref(), &|name| std::env::var(name).ok())
    }
}
