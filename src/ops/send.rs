//! Sending messages with a key.

use aws_config::SdkConfig;
use aws_sdk_sqs::types::MessageAttributeValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::front::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
use crate::protocol::IdempotencyKey;

/// One message, as a line of JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The job's name.
    pub job: String,
    /// Names the operation.
    #[serde(rename = "idempotency-key")]
    pub key: String,
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

impl Line {
    /// Reads a line; the error says what is missing.
    pub fn read(text: &str) -> Result<Self, String> {
        let line: Self = serde_json::from_str(text).map_err(|error| {
            format!(
                "{error}; a line is {{\"job\": \"..\", \"idempotency-key\": \"..\", \"body\": ..}}"
            )
        })?;
        IdempotencyKey::new(line.key.as_str()).map_err(|error| error.to_string())?;
        Ok(line)
    }
}

impl Line {
    /// The message's body: text as it is, anything else as JSON.
    pub fn body_text(&self) -> String {
        body_text(&self.body)
    }
}

/// Sends one message to a queue.
pub async fn send(sdk: &SdkConfig, queue_url: &str, line: &Line) -> Result<Sent, Error> {
    let attribute = |value: &str| {
        MessageAttributeValue::builder().data_type("String").string_value(value).build()
    };
    let fault = |error| Error::new(ErrorKind::Queue, "send").with_source(error);
    let sent = aws_sdk_sqs::Client::new(sdk)
        .send_message()
        .queue_url(queue_url)
        .message_body(line.body_text())
        .message_attributes(ATTRIBUTE_KEY, attribute(&line.key).map_err(|e| fault(Box::new(e)))?)
        .message_attributes(ATTRIBUTE_JOB, attribute(&line.job).map_err(|e| fault(Box::new(e)))?)
        .set_message_group_id(line.group.clone())
        .send()
        .await
        .map_err(|error| Error::new(ErrorKind::Queue, "send").with_source(error))?;
    Ok(Sent { job: line.job.clone(), message_id: sent.message_id })
}

/// A message's body for what a line says: text as it is, anything else as JSON.
pub(super) fn body_text(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
