//! The job a message asks for, by the worker's rules.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::Value;

use super::envelope::{self, Opened};
use super::message::{Asks, AttributeValue, Message};
use super::queue::ATTRIBUTE_UNIQUE;
use crate::protocol::IdempotencyKey;
use crate::rules::{Derive, MessageRules};
use crate::service::{Delivery, UniqueRow};

/// What a message asks for.
pub(crate) enum Asked {
    /// A job.
    Job(Delivery),
    /// Nothing: a service says that it is connected.
    Nothing,
    /// It cannot be told, for this reason. No reason quotes the message: it is kept and shown.
    Unclear(String),
}

/// Reads what a message asks for. It is never given a made-up key.
pub(crate) fn asked(message: &Message, rules: &MessageRules) -> Asked {
    if let Some(fault) = &message.fault {
        return Asked::Unclear(fault.clone());
    }
    let Some(body) = &message.body else {
        return Asked::Unclear("the message has no body".to_owned());
    };
    if let Some(Asks { job, key }) = &message.asks {
        return Asked::Job(Delivery {
            job: job.clone(),
            key: key.clone(),
            body: body.clone(),
            message_id: Some(message.id.clone()),
            enqueued_at: message.sent_at,
            unique: None,
        });
    }
    // Before anything is derived from it, and before it counts as a broken wrapping.
    if !message.attributes.contains_key(&rules.key_attribute) && is_test_event(body) {
        return Asked::Nothing;
    }
    match delivery(message, body, rules) {
        Ok(delivery) => Asked::Job(delivery),
        Err(why) => Asked::Unclear(why),
    }
}

fn delivery(message: &Message, body: &str, rules: &MessageRules) -> Result<Delivery, String> {
    let opened = envelope::open(message, body, rules)?;
    let seen = match (&rules.key, &rules.job) {
        (None, None) => Value::Null,
        _ => opened.seen(),
    };
    let key = name(&opened, &rules.key_attribute, rules.key.as_ref(), &seen)?;
    let key = key.ok_or_else(|| missing(&rules.key_attribute, "the operation", &rules.key))?;
    let key = IdempotencyKey::new(key).map_err(|error| format!("{error}; correct the producer"))?;
    let job = name(&opened, &rules.job_attribute, rules.job.as_ref(), &seen)?;
    let job = job.or_else(|| rules.default_job.clone()).filter(|job| !job.is_empty());
    let job = job.ok_or_else(|| missing(&rules.job_attribute, "the job", &rules.job))?;
    Ok(Delivery {
        job,
        key,
        body: opened.payload,
        message_id: Some(message.id.clone()),
        enqueued_at: message.sent_at,
        unique: unique(message),
    })
}

/// The row of a unique message: whoever writes this attribute by hand clears nothing but such rows.
fn unique(message: &Message) -> Option<UniqueRow> {
    let AttributeValue::Text(text) = &message.attributes.get(ATTRIBUTE_UNIQUE)?.value else {
        return None;
    };
    UniqueRow::read(text)
}

/// A name that is given, perhaps an empty one, or else one that is derived.
fn name(
    opened: &Opened,
    attribute: &str,
    derive: Option<&Derive>,
    seen: &Value,
) -> Result<Option<String>, String> {
    match opened.attributes.get(attribute).map(|attribute| &attribute.value) {
        Some(AttributeValue::Text(text)) => return Ok(Some(text.clone())),
        // The producer means this one: another must not take its place.
        Some(AttributeValue::Binary(_)) => {
            return Err(format!("the attribute {attribute:?} is binary; send it as a String"));
        }
        None => {}
    }
    let Some(derive) = derive else {
        return Ok(None);
    };
    // A panic here would fail the batch, each time it is delivered.
    let derived = catch_unwind(AssertUnwindSafe(|| derive(seen)))
        .map_err(|_| format!("deriving {attribute:?} from the body panicked; correct the rule"))?;
    Ok(envelope::name_of(&derived).filter(|name| !name.is_empty()))
}

fn missing(attribute: &str, what: &str, derive: &Option<Derive>) -> String {
    let derived = match derive {
        Some(_) => ", and the rule that derives it gives no text or whole number for this body",
        None => "",
    };
    format!(
        "the message has no text attribute {attribute:?}, which names {what}{derived}; set it \
         where the command is accepted, then send the message again"
    )
}

/// S3 says once that a notification is set up; SNS may have wrapped it.
fn is_test_event(body: &str) -> bool {
    const TEST: &str = "s3:TestEvent";
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Notification {
        event: Option<String>,
        message: Option<String>,
    }
    // Most bodies are not parsed for this.
    if !body.contains(TEST) {
        return false;
    }
    let Ok(outer) = serde_json::from_str::<Notification>(body) else {
        return false;
    };
    let is_test = |notification: &Notification| notification.event.as_deref() == Some(TEST);
    let inner = outer.message.as_deref().map(serde_json::from_str::<Notification>);
    is_test(&outer) || inner.is_some_and(|inner| inner.as_ref().is_ok_and(is_test))
}

#[cfg(test)]
#[path = "asked_tests.rs"]
mod tests;
