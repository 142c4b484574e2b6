//! One receive, and its messages as the front knows them.

use aws_sdk_sqs::types::{Message as Received, MessageSystemAttributeName};

use super::super::message::{Attribute, AttributeValue, Message};
use super::Poll;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Timestamp, TraceParent};

/// How long a receive waits for messages, SQS's most.
const LONG_POLL: i32 = 20;

impl Poll {
    /// Waits for messages, `most` of them at most and ten.
    pub(super) async fn receive(&self, most: usize) -> Result<Vec<Message>, Error> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(most).unwrap_or(1))
            .wait_time_seconds(LONG_POLL)
            // What claims are made for, also if the queue's setting has changed meanwhile.
            .visibility_timeout(i32::try_from(self.visibility.as_secs()).unwrap_or(i32::MAX))
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|error| Error::new(ErrorKind::Queue, "receive").with_source(error))?;
        let received = received.messages.unwrap_or_default().into_iter();
        Ok(received.map(|message| read(message, self.arn.as_deref())).collect())
    }
}

/// A message of the queue `arn`, as it was received with all that SQS says of it.
pub(crate) fn read(received: Received, arn: Option<&str>) -> Message {
    let system = received.attributes.unwrap_or_default();
    let attributes = received.message_attributes.unwrap_or_default().into_iter();
    Message {
        id: received.message_id.unwrap_or_default(),
        receipt: received.receipt_handle,
        body: received.body,
        attributes: attributes
            .filter_map(|(name, attribute)| {
                let value = match (attribute.string_value, attribute.binary_value) {
                    (Some(text), _) => AttributeValue::Text(text),
                    (None, Some(bytes)) => AttributeValue::Binary(bytes.into_inner()),
                    (None, None) => return None,
                };
                Some((name, Attribute { data_type: attribute.data_type, value }))
            })
            .collect(),
        sent_at: system
            .get(&MessageSystemAttributeName::SentTimestamp)
            .and_then(|ms| ms.parse().ok())
            .map(Timestamp::from_millis),
        group: system.get(&MessageSystemAttributeName::MessageGroupId).cloned(),
        asks: None,
        source_arn: arn.map(str::to_owned),
        xray: system
            .get(&MessageSystemAttributeName::AwsTraceHeader)
            .and_then(|header| TraceParent::from_xray(header)),
        fault: None,
    }
}
