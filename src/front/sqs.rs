//! SQS behind the front: visibility timeouts and the quarantine queue.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, MessageAttributeValue};
use tokio::sync::Mutex;
use tracing::warn;

use super::message::{Attribute, AttributeValue, Message};
use super::queue::{Delay, Mark, Placed, Queue, carried};
use crate::error::{Error, ErrorKind};
use crate::service::Cause;

/// Entries in one batch call.
const MAX_ENTRIES: usize = 10;

/// SQS, for messages of any queue of one account and Region.
pub struct SqsQueue {
    client: Client,
    queue_url: Option<String>,
    dlq_url: Option<String>,
    /// Queue URLs by ARN, each looked up once.
    urls: Mutex<HashMap<String, String>>,
}

impl SqsQueue {
    /// SQS by these settings, without a quarantine queue.
    pub fn new(sdk: &SdkConfig) -> Self {
        Self { client: Client::new(sdk), queue_url: None, dlq_url: None, urls: Mutex::default() }
    }

    /// Uses this URL for visibility timeouts instead of looking it up from the event's ARN.
    #[must_use]
    pub fn queue_url(mut self, url: Option<String>) -> Self {
        self.queue_url = url;
        self
    }

    /// Where messages that nobody can run go. Without one they are left to the redrive policy of
    /// the queue they came from.
    #[must_use]
    pub fn dlq_url(mut self, url: Option<String>) -> Self {
        self.dlq_url = url;
        self
    }

    async fn url_of(&self, message: &Message) -> Option<String> {
        if let Some(url) = &self.queue_url {
            return Some(url.clone());
        }
        let arn = message.source_arn.as_deref()?;
        let mut urls = self.urls.lock().await;
        if let Some(url) = urls.get(arn) {
            return Some(url.clone());
        }
        // arn:aws:sqs:region:account:name
        let parts: Vec<&str> = arn.split(':').collect();
        let (account, name) = (parts.get(4)?, parts.get(5)?);
        let found = self
            .client
            .get_queue_url()
            .queue_name(*name)
            .queue_owner_aws_account_id(*account)
            .send()
            .await;
        match found.map(|found| found.queue_url) {
            Ok(Some(url)) => {
                urls.insert(arn.to_owned(), url.clone());
                Some(url)
            }
            Ok(None) => None,
            Err(error) => {
                let error = Error::new(ErrorKind::Queue, "get queue url").with_source(error);
                warn!(%error, "set ONLYONCE_QUEUE_URL, or allow sqs:GetQueueUrl");
                None
            }
        }
    }

    /// Puts a message into a queue; `once` tells copies of it from others, where the queue looks.
    async fn post(
        &self,
        operation: &'static str,
        url: &str,
        (body, attributes): (&str, BTreeMap<String, Attribute>),
        group: Option<&str>,
        once: String,
    ) -> Result<Placed, Error> {
        let attributes = encode(attributes)
            .map_err(|error| Error::new(ErrorKind::Queue, operation).with_source(error))?;
        let mut send = self
            .client
            .send_message()
            .queue_url(url)
            .message_body(body)
            .set_message_attributes(Some(attributes));
        if url.ends_with(".fifo") {
            send =
                send.message_group_id(group.unwrap_or("onlyonce")).message_deduplication_id(once);
        }
        send.send()
            .await
            .map(|_| Placed::Sent)
            .map_err(|error| Error::new(ErrorKind::Queue, operation).with_source(error))
    }

    /// Hides up to ten messages, and answers which did not work and may be tried again.
    async fn hide(&self, url: &str, delays: &[Delay<'_>]) -> Result<Vec<usize>, Error> {
        let entry = |(n, delay): (usize, &Delay<'_>)| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(n.to_string())
                .receipt_handle(delay.message.receipt.as_deref().unwrap_or_default())
                .visibility_timeout(i32::try_from(delay.seconds).unwrap_or(i32::MAX))
                .build()
        };
        let entries =
            delays.iter().enumerate().map(entry).collect::<Result<_, _>>().map_err(|error| {
                Error::new(ErrorKind::Queue, "set visibility").with_source(error)
            })?;
        let answer = self
            .client
            .change_message_visibility_batch()
            .queue_url(url)
            .set_entries(Some(entries))
            .send()
            .await
            .map_err(|error| Error::new(ErrorKind::Queue, "set visibility").with_source(error))?;
        let mut again = Vec::new();
        for failed in answer.failed {
            let at: Option<usize> = failed.id.parse().ok();
            let message_id = at.and_then(|at| delays.get(at)).map(|d| d.message.id.as_str());
            match at {
                Some(at) if !failed.sender_fault => again.push(at),
                _ => warn!(message_id, code = failed.code, "its visibility timeout was not set"),
            }
        }
        Ok(again)
    }
}

#[async_trait]
impl Queue for SqsQueue {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        let Some(url) = &self.dlq_url else {
            return Ok(Placed::Left("ONLYONCE_DLQ_URL is not set"));
        };
        let (body, attributes) = match carried(message, mark) {
            Ok(carried) => carried,
            Err(why) => return Ok(Placed::Left(why)),
        };
        // The same failure sent twice is one message; a later failure is another. Messages that
        // bring other payloads under one key are each their own: SQS would drop all but the first,
        // and say that it took them.
        let once = match (&mark.key, mark.token) {
            (Some(key), Some(token)) if mark.cause != Cause::Mismatch.to_string() => {
                format!("{key}-{token}")
            }
            _ => message.id.clone(),
        };
        self.post("quarantine", url, (body, attributes), message.group.as_deref(), once).await
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        let mut by_queue: HashMap<Option<&str>, Vec<Delay<'_>>> = HashMap::new();
        for delay in delays.into_iter().filter(|delay| delay.message.receipt.is_some()) {
            by_queue.entry(delay.message.source_arn.as_deref()).or_default().push(delay);
        }
        for delays in by_queue.into_values() {
            let Some(first) = delays.first() else {
                continue;
            };
            let Some(url) = self.url_of(first.message).await else {
                continue;
            };
            for chunk in delays.chunks(MAX_ENTRIES) {
                let again = match self.hide(&url, chunk).await {
                    Ok(again) => again,
                    Err(error) => {
                        warn!(%error, "messages come back by their own visibility timeout");
                        continue;
                    }
                };
                let again: Vec<_> = again.iter().filter_map(|at| chunk.get(*at)).copied().collect();
                if again.is_empty() {
                    continue;
                }
                if let Ok(still) = self.hide(&url, &again).await
                    && !still.is_empty()
                {
                    warn!(messages = still.len(), "their visibility timeouts were not set");
                }
            }
        }
    }

    async fn send(&self, message: &Message) -> Result<Placed, Error> {
        let Some(url) = &self.queue_url else {
            return Ok(Placed::Left("ONLYONCE_QUEUE_URL is not set"));
        };
        let body = message.body.as_deref().unwrap_or_default();
        let (group, once) = (message.group.as_deref(), message.id.clone());
        self.post("send", url, (body, message.attributes.clone()), group, once).await
    }
}

/// Attributes as SQS takes them.
fn encode(
    attributes: BTreeMap<String, Attribute>,
) -> Result<HashMap<String, MessageAttributeValue>, BuildError> {
    let one = |attribute: Attribute| {
        let built = MessageAttributeValue::builder().data_type(attribute.data_type);
        match attribute.value {
            AttributeValue::Text(text) => built.string_value(text).build(),
            AttributeValue::Binary(bytes) => built.binary_value(Blob::new(bytes)).build(),
        }
    };
    attributes.into_iter().map(|(name, attribute)| Ok((name, one(attribute)?))).collect()
}

impl fmt::Debug for SqsQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsQueue").field("dlq_url", &self.dlq_url).finish_non_exhaustive()
    }
}
