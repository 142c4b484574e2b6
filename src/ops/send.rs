//! Sending messages with a key.

use aws_config::SdkConfig;
use aws_sdk_sqs::types::MessageAttributeValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lines;
use crate::error::{Error, ErrorKind};
use crate::front::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
use crate::protocol::IdempotencyKey;

/// One message, as a line of JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// The job's name.
    pub job: String,
    /// Names the operation.
    #[serde(rename = "idempotency-key", deserialize_with = "lines::key")]
    pub key: IdempotencyKey,
    /// The payload: JSON, or a string that is sent as it is.
    pub body: Value,
    /// The message group, for a FIFO queue.
    pub group: Option<String>,
}

/// A message that is in the queue.
#[derive(Clone, Debug, Serialize)]
pub struct Sent {
    /// The job's name.
    pub job: String,
    /// The queue's id of it.
    pub message_id: Option<String>,
}

impl MessageLine {
    /// Reads a line; the error says what is missing.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "{error}; a line is {{\"job\": \"..\", \"idempotency-key\": \"..\", \"body\": ..}}"
            )
        })
    }

    /// The message's body: text as it is, anything else as JSON.
    pub fn body_text(&self) -> String {
        lines::body_text(&self.body)
    }
}

/// Sends one message to a queue.
pub async fn send(sdk: &SdkConfig, queue_url: &str, line: &MessageLine) -> Result<Sent, Error> {
    let attribute = |value: &str| {
        let built = MessageAttributeValue::builder().data_type("String").string_value(value);
        built.build().map_err(|error| Error::new(ErrorKind::Queue, "send").with_source(error))
    };
    let sent = aws_sdk_sqs::Client::new(sdk)
        .send_message()
        .queue_url(queue_url)
        .message_body(line.body_text())
        .message_attributes(ATTRIBUTE_KEY, attribute(line.key.as_str())?)
        .message_attributes(ATTRIBUTE_JOB, attribute(&line.job)?)
        .set_message_group_id(line.group.clone())
        .send()
        .await
        .map_err(|error| Error::new(ErrorKind::Queue, "send").with_source(error))?;
    Ok(Sent { job: line.job.clone(), message_id: sent.message_id })
}
