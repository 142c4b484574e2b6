//! What an error of the SDK says about what has happened.

use std::error::Error as StdError;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use hyper_util::client::legacy::Error as ClientError;

use crate::error::HandlerError;

/// What was asked of AWS, for an error's text.
pub(super) struct Asked<'a> {
    /// The action that the worker must be allowed: `sqs:SendMessage`.
    pub action: &'static str,
    /// On what.
    pub target: &'a str,
}

/// Nothing has happened, for certain, and trying again may help.
pub(super) fn nothing_happened(message: impl std::fmt::Display) -> HandlerError {
    HandlerError::retryable(message).not_sent()
}

/// Nothing has happened, for certain, and trying again as it is cannot help. No rejection in the
/// sense of [`HandlerError::rejected`]: AWS remembers none under a key, so the key stays the same.
pub(super) fn not_taken(message: impl std::fmt::Display) -> HandlerError {
    HandlerError::terminal(message).not_sent()
}

/// What AWS says when it was too busy to begin, or could not yet.
const NOT_NOW: &[&str] = &[
    "EC2ThrottledException",
    "EFSMountConnectivityException",
    "EFSMountTimeoutException",
    "ENILimitReachedException",
    "ENINotReadyException",
    "KMSThrottlingException",
    "KmsThrottled",
    "KMSThrottled",
    "LimitExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "ResourceConflictException",
    "ResourceNotReadyException",
    "SnapStartNotReadyException",
    "SubnetIPAddressLimitReachedException",
    "Throttled",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    // The worker's clock or its credentials, which are renewed.
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];

/// What AWS says when the worker may not.
const NOT_ALLOWED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "AuthorizationErrorException",
    "KMS.AccessDeniedException",
    "KMSAccessDenied",
    "KMSAccessDeniedException",
    "KmsAccessDenied",
];

/// What AWS says when what was asked for is not there.
const NOT_THERE: &[&str] = &[
    "AWS.SimpleQueueService.NonExistentQueue",
    "NotFound",
    "NotFoundException",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
];

/// An answer with an error: by its code, else by its status.
pub(super) fn refused(asked: &Asked<'_>, code: &str, status: Option<u16>) -> HandlerError {
    let Asked { action, target } = asked;
    let message = format!("{action} on {target:?}: {}", shown(code));
    if NOT_NOW.contains(&code) || status == Some(429) {
        return nothing_happened(message);
    }
    if NOT_ALLOWED.contains(&code) {
        return not_taken(format!("{message}; allow the worker {action} on it"));
    }
    if NOT_THERE.contains(&code) {
        let remedy = "correct the jobs file, or make it, then redrive";
        return not_taken(format!("{message}; {remedy}"));
    }
    match status {
        Some(400..=407 | 409..=499) => not_taken(message),
        _ => HandlerError::retryable(message),
    }
}

/// AWS's codes are words. Its texts are left out: they may quote what was sent.
fn shown(code: &str) -> String {
    let code: String = code.chars().filter(|c| c.is_ascii_graphic()).take(100).collect();
    if code.is_empty() { "an error without a code".to_owned() } else { code }
}

/// A request that failed.
pub(super) fn told_apart<E>(
    asked: &Asked<'_>,
    error: &SdkError<E, HttpResponse>,
    is_sent: bool,
) -> HandlerError
where
    E: ProvideErrorMetadata + StdError + 'static,
{
    let Asked { action, target } = asked;
    match error {
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            refused(asked, answer.err().code().unwrap_or_default(), Some(status))
        }
        // What the request lacks it will lack the next time, too.
        SdkError::ConstructionFailure(_) => {
            not_taken(format!("{action} on {target:?}: {}", beneath(error)))
        }
        _ if !is_sent => {
            let why = beneath(error);
            nothing_happened(format!("{action} on {target:?}: it could not be sent: {why}"))
        }
        SdkError::DispatchFailure(_) if is_unconnected(error) => {
            nothing_happened(format!("{action} on {target:?}: no connection to AWS could be made"))
        }
        _ => HandlerError::retryable(format!(
            "{action} on {target:?}: its answer was lost ({error}); it may have happened"
        )),
    }
}

/// A request without an answer in time.
pub(super) fn unanswered(asked: &Asked<'_>, is_sent: bool) -> HandlerError {
    let Asked { action, target } = asked;
    let message = format!("{action} on {target:?}: no answer in time");
    if is_sent {
        HandlerError::retryable(format!("{message}; it may have happened"))
    } else {
        nothing_happened(format!("{message}; it had not been sent"))
    }
}

/// The last cause, which says what is missing.
fn beneath<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    causes(error).last().unwrap_or(error)
}

/// Whether there never was a connection the request could have gone over.
fn is_unconnected(error: &(dyn StdError + 'static)) -> bool {
    let mut causes = causes(error);
    causes.any(|cause| cause.downcast_ref::<ClientError>().is_some_and(ClientError::is_connect))
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
