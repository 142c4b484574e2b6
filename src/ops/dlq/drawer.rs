//! Going through a queue without emptying it.

use std::collections::HashSet;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{ChangeMessageVisibilityBatchRequestEntry, MessageSystemAttributeName};

use crate::error::{Error, ErrorKind};
use crate::front::{Message, read};

/// How long what was looked at stays hidden, should nobody put it back.
const HIDDEN_SECONDS: i32 = 120;
/// Messages in one call, SQS's most.
const BATCH: usize = 10;
/// Empty answers in a row after which a queue counts as gone through: a standard queue asks a part
/// of its servers at a time, the more the longer it may wait.
const EMPTY: usize = 2;
const WAIT_SECONDS: i32 = 1;

/// How many receives may in a row bring nothing but what was seen and has come back.
const SEEN_AGAIN: usize = 10_000;

/// A dead-letter queue, being gone through. What is taken out is hidden from others, and comes back
/// by itself if this ends in any way.
pub(in crate::ops) struct Drawer {
    client: Client,
    url: String,
    seen: HashSet<String>,
    /// Receipts of what is to be put back.
    out: Vec<String>,
}

impl Drawer {
    pub fn new(client: Client, url: String) -> Self {
        Self { client, url, seen: HashSet::new(), out: Vec::new() }
    }

    /// The next messages that were not seen yet; none at the end.
    pub async fn next(&mut self) -> Result<Vec<Message>, Error> {
        let mut empty = 0;
        for _ in 0..SEEN_AGAIN {
            let received = self.receive().await?;
            empty = if received.is_empty() { empty + 1 } else { 0 };
            let (new, seen): (Vec<_>, Vec<_>) =
                received.into_iter().partition(|message| self.seen.insert(message.id.clone()));
            // It has come back meanwhile, and its first receipt is good for nothing.
            seen.iter().for_each(|message| self.leave(message));
            if !new.is_empty() || empty == EMPTY {
                return Ok(new);
            }
        }
        Ok(Vec::new())
    }

    async fn receive(&self) -> Result<Vec<Message>, Error> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(BATCH).unwrap_or(i32::MAX))
            .visibility_timeout(HIDDEN_SECONDS)
            .wait_time_seconds(WAIT_SECONDS)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|error| Error::new(ErrorKind::Queue, "receive").with_source(error))?;
        let received = received.messages.unwrap_or_default().into_iter();
        Ok(received.map(|message| read(message, None)).collect())
    }

    /// Takes a message out for good.
    pub async fn delete(&self, message: &Message) -> Result<(), Error> {
        let delete = self.client.delete_message().queue_url(&self.url);
        let delete = delete.receipt_handle(message.receipt.as_deref().unwrap_or_default());
        let sent = delete.send().await;
        sent.map(drop).map_err(|error| Error::new(ErrorKind::Queue, "delete").with_source(error))
    }

    /// Notes a message to be put back.
    pub fn leave(&mut self, message: &Message) {
        self.out.extend(message.receipt.clone());
    }

    /// Puts back what was left. Best effort: it comes back by itself.
    pub async fn close(self) {
        for receipts in self.out.chunks(BATCH) {
            let entry = |(n, receipt): (usize, &String)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(receipt)
                    .visibility_timeout(0)
                    .build()
            };
            let Ok(entries) = receipts.iter().enumerate().map(entry).collect() else { return };
            let change = self.client.change_message_visibility_batch().queue_url(&self.url);
            if let Err(error) = change.set_entries(Some(entries)).send().await {
                let error = Error::new(ErrorKind::Queue, "put back").with_source(error);
                tracing::warn!(%error, "what was looked at comes back by itself in two minutes");
                return;
            }
        }
    }
}
