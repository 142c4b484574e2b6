//! A message as a queue delivers it.

use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::Timestamp;
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
    /// The queue it came from.
    pub source_arn: Option<String>,
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
