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
        jobs_file::load(path.as_ref(), &|name| std::env::var(name).ok())
    }
}
