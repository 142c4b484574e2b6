//! An SQS event in, `batchItemFailures` out.

use serde::Serialize;

use super::message::Message;
use super::queue::Queue;
use super::{event, run_batch};
use crate::error::Error;
use crate::protocol::Timestamp;
use crate::service::{Deadline, Worker};

/// Which messages must be delivered again. Anything but this exact shape deletes, or fails, the
/// whole batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchResponse {
    /// One entry per message; empty if all are done.
    pub batch_item_failures: Vec<ItemFailure>,
}

/// One message that must be delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemFailure {
    /// Its message id.
    pub item_identifier: String,
}

/// Answers one SQS event. `hard` is when the platform ends the invocation.
pub async fn answer(
    worker: &Worker,
    queue: &dyn Queue,
    event: &str,
    hard: Timestamp,
) -> Result<BatchResponse, Error> {
    answer_within(worker, queue, event, Deadline::new(worker.clock().now(), hard)).await
}

/// The same, by a deadline of any kind.
pub(crate) async fn answer_within(
    worker: &Worker,
    queue: &dyn Queue,
    event: &str,
    deadline: Deadline,
) -> Result<BatchResponse, Error> {
    answer_to(worker, queue, &event::messages(event)?, deadline).await
}

/// The same for messages that have been read: of a large event, its text need not be kept.
pub(crate) async fn answer_to(
    worker: &Worker,
    queue: &dyn Queue,
    messages: &[Message],
    deadline: Deadline,
) -> Result<BatchResponse, Error> {
    let failed = run_batch(worker, queue, messages, deadline).await;
    let failure = |id| ItemFailure { item_identifier: id };
    Ok(BatchResponse { batch_item_failures: failed.into_iter().map(failure).collect() })
}
