//! Lambda's runtime: invocations in, answers out.

use lambda_runtime::{LambdaEvent, service_fn};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::{BoxError, Error};
use crate::protocol::Timestamp;

/// Answers invocations until Lambda ends the process. `answer` is given each event, and when the
/// platform ends its invocation. On Lambda Managed Instances as many are answered at once as
/// `AWS_LAMBDA_MAX_CONCURRENCY` says; elsewhere one after another.
pub async fn serve<F, A, T>(answer: F) -> Result<(), BoxError>
where
    F: Fn(Box<RawValue>, Timestamp) -> A + Clone + Send + 'static,
    A: Future<Output = Result<T, Error>> + Send + 'static,
    T: Serialize + Send + 'static,
{
    lambda_runtime::run_concurrent(service_fn(move |event: LambdaEvent<Box<RawValue>>| {
        let hard = Timestamp::from_millis(event.context.deadline);
        let answered = answer(event.payload, hard);
        async move {
            answered.await.map_err(|error| {
                tracing::error!(%error, "the invocation fails as a whole");
                BoxError::from(error)
            })
        }
    }))
    .await
}
