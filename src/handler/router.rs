//! Jobs by name.

use std::collections::HashMap;

use serde::Serialize;

use super::{FromPayload, Handler, Job};
use crate::rules::MessageRules;

/// Jobs by name.
#[derive(Clone, Debug, Default)]
pub struct Router {
    jobs: HashMap<String, Job>,
    twice: Option<String>,
    messages: MessageRules,
}

impl Router {
    /// No jobs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the job `name` with the default policy.
    #[must_use]
    pub fn job<H, P, R>(self, name: impl Into<String>, handler: H) -> Self
    where
        H: Handler<P, R>,
        P: FromPayload + 'static,
        R: Serialize + Send + 'static,
    {
        self.with(Job::new(name, handler))
    }

    /// Adds a job with its own policy.
    #[must_use]
    pub fn with(mut self, job: Job) -> Self {
        let name = job.name.clone();
        if self.jobs.insert(name.clone(), job).is_some() {
            self.twice = Some(name);
        }
        self
    }

    /// How messages name their job and key; by default with attributes.
    #[must_use]
    pub fn messages(mut self, rules: MessageRules) -> Self {
        self.messages = rules;
        self
    }

    pub(crate) fn message_rules(&self) -> &MessageRules {
        &self.messages
    }

    /// Each job, by its name.
    #[cfg(feature = "cli")]
    pub(crate) fn all(&self) -> Vec<&Job> {
        let mut jobs: Vec<&Job> = self.jobs.values().collect();
        jobs.sort_by(|one, other| one.name.cmp(&other.name));
        jobs
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Job> {
        self.jobs.get(name)
    }

    /// A name that was added twice: which of the two should run is anybody's guess.
    pub(crate) fn name_twice(&self) -> Option<&str> {
        self.twice.as_deref()
    }

    /// A job that writes rows.
    pub(crate) fn staging_rows(&self) -> Option<&str> {
        self.jobs.values().find(|job| job.policy.stages_rows).map(|job| job.name.as_str())
    }

    pub(crate) fn map(mut self, change: impl Fn(Job) -> Job) -> Self {
        self.jobs = self.jobs.into_iter().map(|(name, job)| (name, change(job))).collect();
        self
    }
}
