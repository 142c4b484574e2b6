//! Sending messages with a key.

use std::path::Path;

use aws_config::SdkConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lines;
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{Asked, Attribute, Message, asked, encode};
use crate::handler::Router;
use crate::protocol::IdempotencyKey;

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

/// A message that is in the queue.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// The queue's id of it.
    pub message_id: Option<String>,
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

/// Reads lines as messages for these jobs, and refuses what a worker could not tell job or key of.
pub fn messages(file: Option<&Path>, jobs: &Router) -> Result<Vec<Message>, BoxError> {
    lines::read_lines(file, |text| {
        let message = MessageLine::read(text)?.message(jobs);
        match asked(&message, jobs.message_rules()) {
            Asked::Unclear(why) => Err(why),
            Asked::Job(_) | Asked::Nothing => Ok(message),
        }
    })
}

/// Sends one message to a queue.
pub async fn send(sdk: &SdkConfig, queue_url: &str, message: &Message) -> Result<Sent, Error> {
    let fault = |error: BoxError| Error::new(ErrorKind::Queue, "send").with_source(error);
    let attributes = encode(message.attributes.clone()).map_err(|error| fault(error.into()))?;
    let sent = aws_sdk_sqs::Client::new(sdk)
        .send_message()
        .queue_url(queue_url)
        .set_message_body(message.body.clone())
        .set_message_attributes(Some(attributes))
        .set_message_group_id(message.group.clone())
        .send()
        .await
        .map_err(|error| fault(error.into()))?;
    Ok(Sent { message_id: sent.message_id })
}
