//! Sending the drill's messages, and looking at its queues.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};

use super::evidence::Sent;
use super::judge::FIRST_AMOUNT;
use crate::drill::{DrillKey, JOB, Order};
use crate::error::{BoxError, Error, ErrorKind};
use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::sdk::SdkConfig;

/// Messages in one request, SQS's most.
const BATCH: usize = 10;
/// How often what was not taken is sent again.
const TRIES: usize = 5;

/// One message.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    pub key: DrillKey,
    pub takes_ms: u64,
    pub why: Sent,
}

/// Sends to one queue, and remembers what was sent when.
pub(super) struct Post {
    client: Client,
    url: String,
    sent: Mutex<HashMap<DrillKey, Vec<(u64, Sent)>>>,
}

impl Post {
    pub fn new(sdk: &SdkConfig, url: &str) -> Self {
        Self { client: Client::new(sdk), url: url.to_owned(), sent: Mutex::default() }
    }

    /// Sends these, ten at a time.
    pub async fn send(&self, sendings: &[Sending]) -> Result<(), BoxError> {
        for batch in sendings.chunks(BATCH) {
            let at = SystemClock.now().millis();
            self.send_batch(batch).await?;
            batch.iter().for_each(|it| self.note(&it.key, at, it.why));
        }
        Ok(())
    }

    /// Notes that a message was sent, by whomever.
    pub fn note(&self, key: &DrillKey, at: u64, why: Sent) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.entry(key.clone()).or_default().push((at, why));
    }

    /// What was sent of a key.
    pub fn sent(&self, key: &DrillKey) -> Vec<(u64, Sent)> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.get(key).cloned().unwrap_or_default()
    }

    async fn send_batch(&self, batch: &[Sending]) -> Result<(), BoxError> {
        let mut left: Vec<(usize, &Sending)> = batch.iter().enumerate().collect();
        let mut why = String::new();
        for _ in 0..TRIES {
            let entries: Result<_, BoxError> =
                left.iter().map(|(n, sending)| self.entry(*n, sending)).collect();
            let send = self.client.send_message_batch().queue_url(&self.url);
            let answer = send.set_entries(Some(entries?)).send().await;
            let answer =
                answer.map_err(|error| Error::new(ErrorKind::Queue, "send").with_source(error))?;
            left.retain(|(n, _)| answer.failed.iter().any(|it| it.id == n.to_string()));
            let Some(failed) = answer.failed.first() else { return Ok(()) };
            failed.code().clone_into(&mut why);
        }
        Err(format!(
            "{} messages were not taken by the queue: SQS answered {why}; look at the queue's policy and \
             its key, and play the drill again",
            left.len()
        )
        .into())
    }

    fn entry(&self, n: usize, sending: &Sending) -> Result<SendMessageBatchRequestEntry, BoxError> {
        let amount = FIRST_AMOUNT + u64::from(sending.why == Sent::Other);
        let Sending { key, takes_ms, .. } = sending;
        let order = Order { scenario: key.scenario, takes_ms: *takes_ms, amount };
        let text = |value: String| {
            MessageAttributeValue::builder().data_type("String").string_value(value).build()
        };
        let is_fifo = self.url.ends_with(".fifo");
        // Copies are to arrive: the queue is not to drop them.
        let once = OsEntropy.claim_id().as_str().to_owned();
        Ok(SendMessageBatchRequestEntry::builder()
            .id(n.to_string())
            .message_body(serde_json::to_string(&order)?)
            .message_attributes(ATTRIBUTE_JOB, text(JOB.to_owned())?)
            .message_attributes(ATTRIBUTE_KEY, text(key.to_string())?)
            .set_message_group_id(is_fifo.then(|| key.to_string()))
            .set_message_deduplication_id(is_fifo.then_some(once))
            .build()?)
    }

    /// How many messages the queue has: waiting, hidden or delayed.
    pub async fn left(&self) -> Result<usize, Error> {
        let asked = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let ask = self.client.get_queue_attributes().queue_url(&self.url);
        let found = ask.set_attribute_names(Some(asked.to_vec())).send().await;
        let found =
            found.map_err(|error| Error::new(ErrorKind::Queue, "count").with_source(error))?;
        let counts = found.attributes.unwrap_or_default();
        Ok(counts.values().filter_map(|count| count.parse::<usize>().ok()).sum())
    }

    /// For how long the queue hides what was received, in seconds.
    pub async fn visibility(&self) -> Result<u64, Error> {
        let name = QueueAttributeName::VisibilityTimeout;
        let ask = self.client.get_queue_attributes().queue_url(&self.url);
        let found = ask.attribute_names(name.clone()).send().await.map_err(|error| {
            Error::new(ErrorKind::Queue, "read the queue's settings").with_source(error)
        })?;
        let seconds = found.attributes.and_then(|mut found| found.remove(&name));
        Ok(seconds.and_then(|text| text.parse().ok()).unwrap_or(30))
    }
}
