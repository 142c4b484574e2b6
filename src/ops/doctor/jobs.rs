//! What the jobs are known by.

use std::time::Duration;

use super::facts::{JobFacts, Jobs};
use crate::handler::Router;
use crate::protocol::Retention;
use crate::rules::Unwrap;

impl From<&Router> for Jobs {
    fn from(router: &Router) -> Self {
        let rules = router.message_rules();
        let jobs = router.all().into_iter().map(|job| {
            let policy = job.policy;
            JobFacts {
                name: job.name.clone(),
                effect: job.declared.effect.clone(),
                guarantee: job.declared.guarantee.clone(),
                key_window: job.declared.key_window,
                attempts: policy.retry.attempts(),
                horizon: policy.retry.longest(policy.timeout.unwrap_or(Duration::ZERO)),
                timeout: policy.timeout,
                retention: match policy.retention {
                    Retention::Forever => None,
                    Retention::For(kept) => Some(kept),
                },
            }
        });
        Self {
            jobs: jobs.collect(),
            key_attribute: rules.key_attribute.clone(),
            key_expression: rules.key_text.clone(),
            sees_event: rules.unwrap.last() == Some(&Unwrap::EventBridge),
        }
    }
}
