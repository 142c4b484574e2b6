//! The worker outside Lambda: receives, runs, deletes what is done, until it is told to stop.

use std::collections::HashSet;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message as Received, MessageSystemAttributeName,
    QueueAttributeName,
};
use tokio::sync::watch;
use tracing::{info, warn};

use super::message::{Attribute, AttributeValue, Message};
use super::queue::Queue;
use super::run_batch;
use crate::error::{Error, ErrorKind};
use crate::protocol::Timestamp;
use crate::runtime::before;
use crate::service::{Deadline, Worker};

/// Messages in one receive, SQS's most.
const BATCH: i32 = 10;
/// How long a receive waits for messages, SQS's most.
const LONG_POLL: i32 = 20;
/// How long running jobs may go on after a stop: less than the half minute after which container
/// platforms kill.
const GRACE: Duration = Duration::from_secs(20);
/// How long releasing them may take.
const RELEASE: Duration = Duration::from_secs(5);

/// One queue, polled.
pub struct Poll {
    client: Client,
    url: String,
    arn: Option<String>,
    /// For how long a received message is hidden: the time a batch has.
    visibility: Duration,
}

impl Poll {
    /// Reads the queue's settings.
    pub async fn open(sdk: &SdkConfig, url: impl Into<String>) -> Result<Self, Error> {
        let url = url.into();
        // A long poll outlasts the time limits of other calls.
        let patient = TimeoutConfig::builder()
            .connect_timeout(Duration::from_secs(2))
            .operation_attempt_timeout(Duration::from_secs(25))
            .operation_timeout(Duration::from_secs(60))
            .build();
        let config = aws_sdk_sqs::config::Builder::from(sdk).timeout_config(patient).build();
        let client = Client::from_conf(config);
        let settings = client
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::QueueArn)
            .attribute_names(QueueAttributeName::VisibilityTimeout)
            .send()
            .await
            .map_err(|error| {
                Error::new(ErrorKind::Queue, "read the queue's settings").with_source(error)
            })?;
        let settings = settings.attributes.unwrap_or_default();
        let seconds = settings.get(&QueueAttributeName::VisibilityTimeout);
        let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(30);
        if seconds == 0 {
            return Err(Error::new(ErrorKind::Config, "read the queue's settings").with_detail(
                "the queue's visibility timeout is 0, which leaves no time for a job; set it to \
                 more than the longest one takes",
            ));
        }
        let arn = settings.get(&QueueAttributeName::QueueArn).cloned();
        Ok(Self { client, url, arn, visibility: Duration::from_secs(seconds) })
    }

    /// Serves until `stop` says so. Then nothing more is received or claimed, running jobs finish,
    /// and those that have not after 20 s are stopped and released.
    pub async fn serve(&self, worker: &Worker, queue: &dyn Queue, stop: watch::Receiver<bool>) {
        info!(queue = self.url, visibility_s = self.visibility.as_secs(), "polling");
        let polls = worker.concurrency().div_ceil(10);
        let polling: Vec<_> =
            (0..polls).map(|_| self.one_by_one(worker, queue, stop.clone())).collect();
        let polling = futures_util::future::join_all(polling);
        let mut told = stop;
        let give_up = async {
            // An error means that nobody can say stop any more; then it is as good as said.
            let _ = told.wait_for(|is_stopping| *is_stopping).await;
            info!("stopping: running jobs finish, nothing more is received");
            let by = worker.clock().now() + GRACE;
            worker.stop_by(by);
            worker.clock().sleep_until(by + RELEASE).await;
        };
        tokio::select! {
            _ = polling => info!("stopped"),
            () = give_up => warn!("stopped with jobs that would not stop; their messages come again"),
        }
    }

    async fn one_by_one(
        &self,
        worker: &Worker,
        queue: &dyn Queue,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut failures = 0u32;
        while !*stop.borrow() {
            let received = tokio::select! {
                received = self.receive() => received,
                _ = stop.wait_for(|is_stopping| *is_stopping) => return,
            };
            match received {
                Ok(messages) => {
                    failures = 0;
                    self.batch(worker, queue, &messages).await;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let wait = Duration::from_secs(2u64.saturating_pow(failures).min(20));
                    warn!(%error, wait_s = wait.as_secs(), "cannot receive; trying again");
                    let clock = worker.clock();
                    let told = stop.wait_for(|is_stopping| *is_stopping);
                    before(clock, clock.now() + wait, told).await;
                }
            }
        }
    }

    async fn receive(&self) -> Result<Vec<Message>, Error> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(BATCH)
            .wait_time_seconds(LONG_POLL)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|error| Error::new(ErrorKind::Queue, "receive").with_source(error))?;
        let received = received.messages.unwrap_or_default().into_iter();
        Ok(received.map(|message| read(message, self.arn.as_deref())).collect())
    }

    async fn batch(&self, worker: &Worker, queue: &dyn Queue, messages: &[Message]) {
        if messages.is_empty() {
            return;
        }
        let now = worker.clock().now();
        let deadline = Deadline::new(now, now + self.visibility);
        let failed: HashSet<String> =
            run_batch(worker, queue, messages, deadline).await.into_iter().collect();
        let done: Vec<_> =
            messages.iter().filter(|message| !failed.contains(&message.id)).collect();
        let deleting = self.delete(&done);
        if before(worker.clock(), deadline.hard, deleting).await.is_none() {
            warn!(messages = done.len(), "not deleted in time; they come again and are replayed");
        }
    }

    /// Deletes what is done. A message that stays comes again and is replayed.
    async fn delete(&self, done: &[&Message]) {
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
            return;
        }
        let sent = self
            .client
            .delete_message_batch()
            .queue_url(&self.url)
            .set_entries(Some(entries))
            .send()
            .await;
        match sent {
            Ok(answer) => {
                for failed in answer.failed {
                    let message = failed.id.parse::<usize>().ok().and_then(|at| done.get(at));
                    let message_id = message.map(|message| message.id.as_str());
                    warn!(message_id, code = failed.code, "not deleted; it comes again");
                }
            }
            Err(error) => {
                let error = Error::new(ErrorKind::Queue, "delete").with_source(error);
                warn!(%error, messages = done.len(), "not deleted; they come again");
            }
        }
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Poll({})", self.url)
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
        fault: None,
    }
}
