//! The worker behind Lambda's SQS event source: an event in, `batchItemFailures` out.

use std::sync::Arc;

use lambda_runtime::{LambdaEvent, service_fn};
use serde::Serialize;
use serde_json::value::RawValue;

use super::queue::Queue;
use super::{event, run_batch};
use crate::error::{BoxError, Error};
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
    let messages = event::messages(event)?;
    let deadline = Deadline::new(worker.clock().now(), hard);
    let failed = run_batch(worker, queue, &messages, deadline).await;
    let failure = |id| ItemFailure { item_identifier: id };
    Ok(BatchResponse { batch_item_failures: failed.into_iter().map(failure).collect() })
}

/// Serves invocations until Lambda ends the process.
pub async fn serve(worker: Worker, queue: impl Queue) -> Result<(), BoxError> {
    let (worker, queue) = (Arc::new(worker), Arc::new(queue));
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Box<RawValue>>| {
        let (worker, queue) = (worker.clone(), queue.clone());
        async move {
            let hard = Timestamp::from_millis(event.context.deadline);
            let answered = answer(&worker, queue.as_ref(), event.payload.get(), hard).await;
            answered.map_err(|error| {
                tracing::error!(%error, "the invocation fails as a whole");
                BoxError::from(error)
            })
        }
    }))
    .await
}
