//! A message in the dead-letter queue, as people see it.

use clap::Args;
use serde::Serialize;

use crate::front::{Asked, Mark, Message, asked};
use crate::handler::Router;
use crate::ops::age::Ages;
use crate::protocol::{IdempotencyKey, RecordId, Timestamp};

/// What is known of a dead letter, without its body.
#[derive(Clone, Debug, Serialize)]
pub struct Letter {
    /// SQS's id of it.
    pub message_id: String,
    /// The job it asks for, if that can be told.
    pub job: Option<String>,
    /// The digest that stands for its key.
    pub pk: Option<String>,
    /// `failed`, `unknown`, `mismatch` or `undecodable`; `redriven` where the queue's own redrive
    /// policy moved it, which says nothing.
    pub cause: String,
    /// What went wrong.
    pub error: Option<String>,
    /// When it was given up, or else sent, in milliseconds.
    pub at: u64,
}

impl Letter {
    /// What is known of a message.
    pub(in crate::ops) fn of(message: &Message, jobs: &Router, namespace: &str) -> Self {
        let mark = Mark::of(message);
        let asked = match asked(message, jobs.message_rules()) {
            Asked::Job(delivery) => Some((delivery.job, delivery.key)),
            Asked::Nothing | Asked::Unclear(_) => None,
        };
        let id = |job: &str, key: &IdempotencyKey| RecordId::new(namespace, job, key).to_string();
        let pk = asked.as_ref().map(|(job, key)| id(job, key));
        let sent = message.sent_at.map(Timestamp::millis).unwrap_or_default();
        Self {
            message_id: message.id.clone(),
            job: asked.map(|(job, _)| job).or_else(|| mark.as_ref()?.job.clone()),
            pk: pk.or_else(|| mark.as_ref()?.key.clone()),
            cause: mark.as_ref().map_or_else(|| "redriven".to_owned(), |mark| mark.cause.clone()),
            at: mark.as_ref().map_or(sent, |mark| mark.at),
            error: mark.map(|mark| mark.error),
        }
    }
}

/// Which of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Filter {
    /// Those that ask for this job.
    #[arg(long)]
    job: Option<String>,
    /// Those that are there for this cause: failed, unknown, mismatch, undecodable, or redriven.
    #[arg(long)]
    cause: Option<String>,
    /// Since they were given up.
    #[command(flatten)]
    ages: Ages,
    /// The one of this key digest, as `list` and logs show it.
    #[arg(long, value_name = "DIGEST")]
    pk: Option<String>,
}

impl Filter {
    /// The one of this key digest.
    pub(in crate::ops) fn of_pk(pk: String) -> Self {
        Self { pk: Some(pk), ..Self::default() }
    }

    pub(super) fn takes(&self, letter: &Letter, now: Timestamp) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        is(&self.job, letter.job.as_deref())
            && is(&self.cause, Some(&letter.cause))
            && is(&self.pk, letter.pk.as_deref())
            && self.ages.take(Timestamp::from_millis(letter.at), now)
    }

    /// Whether messages that no rule here can read are asked for by their cause.
    pub(super) fn names_undecodable(&self) -> bool {
        self.cause.as_deref() == Some("undecodable")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::front::{Attribute, QUARANTINE_ATTRIBUTE};

    #[test]
    fn a_letter_is_told_by_job_cause_age_and_key() {
        let mark = "{\"job\":\"a\",\"key\":\"00\",\"token\":1,\"cause\":\"failed\",\
            \"error\":\"why\",\"at\":10000}";
        let mut message = Message::new("a", "k", "{}");
        let redriven = Letter::of(&message, &Router::new(), "default");
        assert_eq!((redriven.cause.as_str(), redriven.at), ("redriven", 0));
        message.attributes.insert(QUARANTINE_ATTRIBUTE.to_owned(), Attribute::text(mark));
        let letter = Letter::of(&message, &Router::new(), "default");
        let pk = RecordId::new("default", "a", &IdempotencyKey::new("k").unwrap()).to_string();
        assert_eq!((letter.pk.as_ref(), letter.error.as_deref()), (Some(&pk), Some("why")));

        let now = Timestamp::from_millis(12_000);
        let some = |text: &str| Some(text.to_owned());
        let age = |ms| Some(Duration::from_millis(ms));
        let none = Filter::default;
        let aged = |older, newer| Filter { ages: Ages { older, newer }, ..none() };
        for (filter, takes) in [
            (none(), true),
            (Filter { job: some("a"), ..none() }, true),
            (Filter { job: some("b"), ..none() }, false),
            (Filter { cause: some("failed"), ..none() }, true),
            (Filter { cause: some("unknown"), ..none() }, false),
            (Filter { pk: Some(pk), ..none() }, true),
            (Filter { pk: some("00"), ..none() }, false),
            (aged(age(2000), None), true),
            (aged(age(2001), None), false),
            (aged(None, age(2000)), true),
            (aged(None, age(1999)), false),
        ] {
            assert_eq!(filter.takes(&letter, now), takes, "{filter:?}");
        }
    }
}
