//! The worker behind Lambda's SQS event source.

use std::sync::Arc;

use lambda_runtime::{LambdaEvent, service_fn};
use serde_json::value::RawValue;

use super::answer::answer;
use super::queue::Queue;
use crate::error::BoxError;
use crate::protocol::Timestamp;
use crate::service::Worker;

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
