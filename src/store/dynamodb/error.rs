//! What an error of DynamoDB says: later, never, or nothing.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use crate::error::{BoxError, Error, ErrorKind};
use crate::protocol::RecordId;

/// Codes that say "later", whichever operation answers them.
const LATER: [&str; 8] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionInProgressException",
    "LimitExceededException",
    "ReplicatedWriteConflictException",
];

pub(super) fn kind(error: &impl ProvideErrorMetadata) -> ErrorKind {
    match error.code() {
        Some("TransactionConflictException") => ErrorKind::StoreContended,
        Some(code) if !LATER.contains(&code) => ErrorKind::StoreRefused,
        _ => ErrorKind::StoreUnavailable,
    }
}

/// The service answered with an error: certain, but for its own failures.
pub(super) fn refusal<E>(operation: &'static str, id: &RecordId, error: E) -> Error
where
    E: ProvideErrorMetadata + Into<BoxError>,
{
    advised(Error::new(kind(&error), operation), error.code()).with_id(id).with_source(error)
}

/// Says what to do where that is known.
pub(super) fn advised(error: Error, code: Option<&str>) -> Error {
    match code {
        Some("ResourceNotFoundException") => error.with_detail(
            "there is no such table here; make it with `onlyonce setup`, or correct ONLYONCE_STORE",
        ),
        _ => error,
    }
}

/// Anything but the service's own word leaves open whether the write landed.
pub(super) fn no_answer<E>(operation: &'static str, id: &RecordId, error: SdkError<E>) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    Error::new(ErrorKind::StoreUnavailable, operation).with_id(id).with_source(error)
}

pub(super) fn sdk_error<E>(
    operation: &'static str,
    id: Option<&RecordId>,
    error: SdkError<E>,
) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let made = advised(Error::new(kind(&error), operation), error.code()).with_source(error);
    match id {
        Some(id) => made.with_id(id),
        None => made,
    }
}
