//! A message as a queue delivers it.

use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::{ATTRIBUTE_TRACE, IdempotencyKey, Timestamp, TraceParent};
use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};

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
    /// What it asks for, where no rule has to find it out: an event of an outbox.
    pub asks: Option<Asks>,
    /// The queue it came from.
    pub source_arn: Option<String>,
    /// The trace that AWS says it belongs to, in X-Ray's header.
    pub xray: Option<TraceParent>,
    /// What is wrong with the record it was read from.
    pub fault: Option<String>,
}

impl Message {
    /// A message that asks for `job` under `key`, as a producer sends it.
    pub fn new(job: &str, key: &str, body: impl Into<String>) -> Self {
        let attributes = [(ATTRIBUTE_JOB, job), (ATTRIBUTE_KEY, key)]
            .map(|(name, value)| (name.to_owned(), Attribute::text(value)));
        Self { body: Some(body.into()), attributes: attributes.into(), ..Self::default() }
    }

    /// The trace it belongs to: its producer's own word, the attribute `traceparent`, or else X-Ray's.
    pub fn trace(&self) -> Option<TraceParent> {
        let said = self.attributes.get(ATTRIBUTE_TRACE).and_then(|said| match &said.value {
            AttributeValue::Text(text) => TraceParent::new(text.as_str()).ok(),
            AttributeValue::Binary(_) => None,
        });
        said.or_else(|| self.xray.clone())
    }

    /// What it is in order with: its group on a FIFO queue or in an outbox; nothing elsewhere.
    pub fn order(&self) -> Option<&str> {
        let is_fifo = self.source_arn.as_ref().is_some_and(|arn| arn.ends_with(".fifo"));
        (is_fifo || self.asks.is_some()).then(|| self.group.as_deref().unwrap_or_default())
    }
}

/// A job and its key, known beforehand.
#[derive(Clone, PartialEq, Eq)]
pub struct Asks {
    /// The job's name.
    pub job: String,
    /// Names the operation.
    pub key: IdempotencyKey,
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
