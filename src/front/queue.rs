//! What a front asks of the queue a message came from.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::message::{Attribute, AttributeValue, Message};
use crate::error::{Error, kept_text};
use crate::protocol::{Timestamp, xml_json};
use crate::service::{Cause, Outcome};

/// The attribute that says why a message is in quarantine. For people and for the command: no worker
/// reads it.
pub const QUARANTINE_ATTRIBUTE: &str = "onlyonce-quarantine";

/// The attribute of a unique message that names the row to clear once its job has ended.
pub const ATTRIBUTE_UNIQUE: &str = "onlyonce-unique";

/// A queue: hides messages for a while, and takes those that nobody can run.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Puts a copy of the message where a person finds it.
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error>;

    /// Sets when messages are delivered again. Best effort: without it a message comes back when
    /// its visibility timeout ends.
    async fn delay(&self, delays: Vec<Delay<'_>>);

    /// Sends a message to the queue itself.
    async fn send(&self, message: &Message) -> Result<Placed, Error> {
        let _ = message;
        Ok(Placed::Left("nothing can be sent to this queue"))
    }
}

/// What became of a message that was to be put in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is there, for certain.
    Sent,
    /// It cannot be put there by us, for this reason: the queue's own redrive policy moves it.
    Left(&'static str),
}

/// A message to be delivered again after `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay<'a> {
    /// The message.
    pub message: &'a Message,
    /// Whole seconds from now.
    pub seconds: u32,
}

/// Why a message is in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The job's name, if it is known.
    pub job: Option<String>,
    /// The digest that stands for the key, if there was one.
    pub key: Option<String>,
    /// The fencing token of the claim that gave up.
    pub token: Option<u64>,
    /// `failed`, `unknown`, `mismatch` or `undecodable`.
    pub cause: String,
    /// What went wrong and what can be done; at most 1 KB.
    pub error: String,
    /// When, in milliseconds since the Unix epoch.
    pub at: u64,
}

impl Mark {
    /// The mark that a message carries; `None` if it was the queue's redrive policy that moved it.
    pub fn of(message: &Message) -> Option<Self> {
        match &message.attributes.get(QUARANTINE_ATTRIBUTE)?.value {
            AttributeValue::Text(text) => serde_json::from_str(text).ok(),
            AttributeValue::Binary(_) => None,
        }
    }

    /// The mark for an outcome.
    pub fn new(outcome: &Outcome, cause: Cause, now: Timestamp) -> Self {
        Self {
            job: outcome.job.clone(),
            key: outcome.id.as_ref().map(ToString::to_string),
            token: outcome.token,
            cause: cause.to_string(),
            error: kept_text(&outcome.explanation(), ""),
            at: now.millis(),
        }
    }
}

/// A message with its attributes: 1 MiB.
const MAX_MESSAGE: usize = 1024 * 1024;
/// Attributes on one message.
const MAX_ATTRIBUTES: usize = 10;

/// What is sent to quarantine, the mark among the attributes; or why SQS would not take it.
pub(crate) fn carried<'a>(
    message: &'a Message,
    mark: &Mark,
) -> Result<(&'a str, BTreeMap<String, Attribute>), &'static str> {
    let body = message.body.as_deref().filter(|body| !body.is_empty());
    let body = body.ok_or("a message without a body cannot be sent")?;
    let mark = serde_json::to_string(mark).map_err(|_| "its mark cannot be written")?;
    let mark = xml_json(mark);
    let mut attributes = message.attributes.clone();
    attributes.insert(QUARANTINE_ATTRIBUTE.to_owned(), Attribute::text(mark));
    if attributes.len() > MAX_ATTRIBUTES {
        return Err("it has ten attributes already, and no room for the mark");
    }
    let size = body.len() + attributes.iter().map(size).sum::<usize>();
    if size > MAX_MESSAGE {
        return Err("with the mark it would be over 1 MiB");
    }
    Ok((body, attributes))
}

fn size((name, attribute): (&String, &Attribute)) -> usize {
    let value = match &attribute.value {
        AttributeValue::Text(text) => text.len(),
        AttributeValue::Binary(bytes) => bytes.len(),
    };
    name.len() + attribute.data_type.len() + value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_only_characters_that_sqs_takes() {
        let message = Message { body: Some("{}".to_owned()), ..Message::default() };
        let mark = Mark {
            job: None,
            key: None,
            token: None,
            cause: "failed".to_owned(),
            error: "no such name: \u{ffff} \u{fffe} \u{1} \u{1F4A3}".to_owned(),
            at: 1,
        };
        let (_, attributes) = carried(&message, &mark).unwrap();
        let AttributeValue::Text(text) = &attributes[QUARANTINE_ATTRIBUTE].value else {
            panic!("it is text")
        };
        // The characters of XML 1.0.
        let is_legal = |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
        assert!(text.chars().all(is_legal), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(read["error"], mark.error);
        let sent = Message { attributes, ..message };
        assert_eq!(Mark::of(&sent), Some(mark));
    }
}
