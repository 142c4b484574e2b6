//! Deletes what is done, ten at a time. A message that stays comes again and is replayed.

use std::time::Duration;

use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tracing::warn;

use super::super::message::Message;
use super::{BATCH, Poll};
use crate::error::{Error, ErrorKind};
use crate::runtime::{Clock, before};

/// How long a message that is done waits for others to be deleted with it.
const GATHERING: Duration = Duration::from_millis(50);
/// Batches under way at once.
const AT_ONCE: usize = 8;
/// How often a batch is sent, and how long one may take.
const TRIES: u32 = 3;
const TAKES: Duration = Duration::from_secs(8);

impl Poll {
    /// Deletes what comes until no more can come, and all is deleted or given up.
    pub(super) async fn deleting(&self, clock: &dyn Clock, done: mpsc::Receiver<Message>) {
        let batches = stream::unfold(done, |mut done| async {
            let mut batch = vec![done.recv().await?];
            let until = clock.now() + GATHERING;
            while batch.len() < BATCH {
                match before(clock, until, done.recv()).await {
                    Some(Some(message)) => batch.push(message),
                    _ => break,
                }
            }
            Some((batch, done))
        });
        batches.for_each_concurrent(AT_ONCE, |batch| self.delete(clock, batch)).await;
    }

    async fn delete(&self, clock: &dyn Clock, mut left: Vec<Message>) {
        for attempt in 0..TRIES {
            if attempt > 0 {
                clock.sleep_until(clock.now() + Duration::from_secs(1) * attempt).await;
            }
            match before(clock, clock.now() + TAKES, self.delete_once(&left)).await {
                Some(Ok(again)) => left.retain(|message| again.contains(&message.id)),
                Some(Err(error)) => warn!(%error, messages = left.len(), "cannot delete"),
                None => warn!(messages = left.len(), "no answer to a delete in time"),
            }
            if left.is_empty() {
                return;
            }
        }
        warn!(messages = left.len(), "not deleted; they come again and are replayed");
    }

    /// Answers the ids of those that are not deleted and may be tried again.
    async fn delete_once(&self, done: &[Message]) -> Result<Vec<String>, Error> {
        let entries: Vec<_> = done
            .iter()
            .enumerate()
            .filter_map(|(n, message)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(message.receipt.as_deref()?)
                    .build()
                    .ok()
            })
            .collect();
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self
            .client
            .delete_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries))
            .send()
            .await
            .map_err(|error| Error::new(ErrorKind::Queue, "delete").with_source(error))?;
        let mut again = Vec::new();
        for failed in answer.failed {
            let message = failed.id.parse::<usize>().ok().and_then(|at| done.get(at));
            let message_id = message.map(|message| message.id.as_str());
            warn!(message_id, code = failed.code, "not deleted");
            if let Some(message) = message.filter(|_| !failed.sender_fault) {
                again.push(message.id.clone());
            }
        }
        Ok(again)
    }
}
