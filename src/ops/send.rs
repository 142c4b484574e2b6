//! A message as a line of JSON.

use serde::Deserialize;
use serde_json::Value;

use super::lines;
use crate::front::{Asked, Attribute, AttributeValue, Message, asked};
use crate::handler::Router;
use crate::producer::Parcel;
use crate::protocol::{IdempotencyKey, KeyAdvice, RecordId};

/// One message, as a line of JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// The job's name; left out where the worker derives it.
    pub job: Option<String>,
    /// Names the operation; left out where the worker derives it.
    #[serde(default, rename = "idempotency-key", deserialize_with = "lines::some_key")]
    pub key: Option<IdempotencyKey>,
    /// The body: JSON, or a string that is sent as it is.
    pub body: Value,
    /// The message group, for a FIFO queue.
    pub group: Option<String>,
}

impl MessageLine {
    /// Reads a line; the error says what is missing.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "{}; a line is {{\"job\": \"..\", \"idempotency-key\": \"..\", \"body\": ..}}",
                lines::fault(&error)
            )
        })
    }

    /// The message, its attributes named as these jobs read them.
    pub fn message(&self, jobs: &Router) -> Message {
        let rules = jobs.message_rules();
        let job = self.job.as_deref().map(|job| (&rules.job_attribute, job));
        let key = self.key.as_ref().map(|key| (&rules.key_attribute, key.as_str()));
        let attributes = [job, key].into_iter().flatten();
        Message {
            body: Some(lines::body_text(&self.body)),
            attributes: attributes
                .map(|(name, value)| (name.clone(), Attribute::text(value)))
                .collect(),
            group: self.group.clone(),
            ..Message::default()
        }
    }
}

/// Reads a line as a message for these jobs, and refuses one that a worker could not tell job or
/// key of.
pub(super) fn parcel(text: &str, jobs: &Router, namespace: &str) -> Result<Letter, String> {
    let message = MessageLine::read(text)?.message(jobs);
    let asked = match asked(&message, jobs.message_rules()) {
        Asked::Unclear(why) => return Err(why),
        Asked::Job(delivery) => Some(delivery),
        Asked::Nothing => None,
    };
    let text = |(name, attribute): (String, Attribute)| match attribute.value {
        AttributeValue::Text(text) => Some((name, text)),
        // A line has no bytes.
        AttributeValue::Binary(_) => None,
    };
    let id = asked.as_ref().map(|asked| RecordId::new(namespace, &asked.job, &asked.key));
    let advice = asked.as_ref().and_then(|asked| KeyAdvice::of(&asked.key));
    let parcel = Parcel {
        id,
        job: asked.map(|asked| asked.job),
        body: message.body.unwrap_or_default(),
        attributes: message.attributes.into_iter().filter_map(text).collect(),
        group: message.group,
        delay: None,
    };
    Ok(Letter { parcel, advice })
}

/// A message to be sent, and what is to be said of its key.
pub(super) struct Letter {
    pub parcel: Parcel,
    pub advice: Option<KeyAdvice>,
}
