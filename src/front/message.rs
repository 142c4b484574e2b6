//! A message as a queue delivers it, and the job it asks for.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::protocol::{IdempotencyKey, Timestamp};
use crate::service::Delivery;

/// The message attribute that names the operation.
pub const ATTRIBUTE_KEY: &str = "idempotency-key";

/// The message attribute that names the job.
pub const ATTRIBUTE_JOB: &str = "job";

/// A message, as it came. `Debug` shows its id only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// The queue's id of it.
    pub id: String,
    /// What the queue knows this delivery by.
    pub receipt: Option<String>,
    /// The payload.
    pub body: Option<String>,
    /// What the producer set beside the body.
    pub attributes: BTreeMap<String, Attribute>,
    /// When it was enqueued.
    pub sent_at: Option<Timestamp>,
    /// The message group; an order on FIFO queues only.
    pub group: Option<String>,
    /// The queue it came from.
    pub source_arn: Option<String>,
    /// What is wrong with the record it was read from.
    pub fault: Option<String>,
}

impl Message {
    /// Whether it came from a FIFO queue, whose groups are in order.
    pub fn is_fifo(&self) -> bool {
        self.source_arn.as_ref().is_some_and(|arn| arn.ends_with(".fifo"))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({})", self.id)
    }
}

/// A message attribute.
#[derive(Clone, PartialEq, Eq)]
pub struct Attribute {
    /// `String`, `Number` or `Binary`, perhaps with a label behind a dot.
    pub data_type: String,
    /// The value.
    pub value: AttributeValue,
}

/// A message attribute's value.
#[derive(Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Of a `String` or `Number`.
    Text(String),
    /// Of a `Binary`.
    Binary(Vec<u8>),
}

impl Attribute {
    /// A `String` attribute.
    pub fn text(value: impl Into<String>) -> Self {
        Self { data_type: "String".to_owned(), value: AttributeValue::Text(value.into()) }
    }
}

/// What a message asks for.
pub(super) enum Asked {
    /// A job.
    Job(Delivery),
    /// Nothing: a service says that it is connected.
    Nothing,
    /// It cannot be told, for this reason.
    Unclear(String),
}

/// Reads what a message asks for. It is never given a made-up key.
pub(super) fn asked(message: &Message) -> Asked {
    if let Some(fault) = &message.fault {
        return Asked::Unclear(fault.clone());
    }
    let Some(body) = &message.body else {
        return Asked::Unclear("the message has no body".to_owned());
    };
    let Some(key) = text(message, ATTRIBUTE_KEY) else {
        if is_test_event(body) {
            return Asked::Nothing;
        }
        return Asked::Unclear(missing(ATTRIBUTE_KEY, "names the operation"));
    };
    let key = match IdempotencyKey::new(key) {
        Ok(key) => key,
        Err(error) => return Asked::Unclear(format!("{error}; correct the producer")),
    };
    match text(message, ATTRIBUTE_JOB) {
        None | Some("") => Asked::Unclear(missing(ATTRIBUTE_JOB, "names the job")),
        Some(job) => Asked::Job(Delivery {
            job: job.to_owned(),
            key,
            body: body.clone(),
            message_id: Some(message.id.clone()),
            enqueued_at: message.sent_at,
        }),
    }
}

fn missing(attribute: &str, what: &str) -> String {
    format!(
        "the message has no text attribute {attribute:?}, which {what}; set it where the command \
         is accepted, then send the message again"
    )
}

fn text<'a>(message: &'a Message, attribute: &str) -> Option<&'a str> {
    match &message.attributes.get(attribute)?.value {
        AttributeValue::Text(text) => Some(text),
        AttributeValue::Binary(_) => None,
    }
}

/// S3 says once that a notification is set up; SNS may have wrapped it.
fn is_test_event(body: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Notification {
        event: Option<String>,
        message: Option<String>,
    }
    let Ok(outer) = serde_json::from_str::<Notification>(body) else {
        return false;
    };
    let is_test =
        |notification: &Notification| notification.event.as_deref() == Some("s3:TestEvent");
    let inner = outer.message.as_deref().map(serde_json::from_str::<Notification>);
    is_test(&outer) || inner.is_some_and(|inner| inner.as_ref().is_ok_and(is_test))
}
