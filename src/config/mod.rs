//! The environment and the jobs file, with every fault named before anything starts.

mod effect;
mod fault;
mod jobs_file;
mod settings;
mod store;

pub use fault::Faults;
pub use settings::{Settings, StoreSetting};

use std::path::Path;

use crate::handler::Router;

impl Router {
    /// The jobs declared in a jobs file. Secrets come from the environment.
    ///
    /// The error names every fault: file, line, and what to write instead.
    pub fn from_jobs_file(path: impl AsRef<Path>) -> Result<Self, Faults> {
        Self::from_jobs_file_in(path, &|name| std::env::var(name).ok())
    }

    /// The same, with the environment given.
    pub fn from_jobs_file_in(
        path: impl AsRef<Path>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Faults> {
        jobs_file::load(path.as_ref(), env)
    }
}
