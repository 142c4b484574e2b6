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
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::request::Sent;
    use super::*;
    use crate::protocol::{Failure, Said};
    use crate::runtime::{Task, spawn};
    use crate::sdk;

    const ASKED: Asked<'_> = Asked { action: "sqs:SendMessage", target: "a-queue" };

    /// Whether trying again may help, and whether nothing has happened for certain.
    fn ends(code: &str, status: Option<u16>) -> (bool, bool) {
        let error = refused(&ASKED, code, status);
        (error.failure() == &Failure::Retryable, error.said() == Said::NotSent)
    }

    #[test]
    fn what_is_not_now_is_worth_trying_again_and_what_is_refused_is_not() {
        for (code, status, expected) in [
            ("TooManyRequestsException", Some(429), (true, true)),
            ("RequestThrottled", Some(400), (true, true)),
            ("ThrottlingException", None, (true, true)),
            ("ExpiredTokenException", Some(403), (true, true)),
            ("AccessDeniedException", Some(403), (false, true)),
            ("AWS.SimpleQueueService.NonExistentQueue", Some(400), (false, true)),
            ("ResourceNotFoundException", Some(404), (false, true)),
            ("InvalidParameterValue", Some(400), (false, true)),
            ("MalformedDetail", Some(400), (false, true)),
            ("InternalFailure", Some(500), (true, false)),
            ("ServiceUnavailable", Some(503), (true, false)),
            ("", Some(408), (true, false)),
            ("InternalFailure", None, (true, false)),
        ] {
            assert_eq!(ends(code, status), expected, "{code} {status:?}");
        }
    }

    #[test]
    fn an_error_names_the_action_the_resource_and_the_remedy() {
        let error = refused(&ASKED, "AccessDeniedException", Some(403));
        let text = error.message();
        assert!(text.contains("allow the worker sqs:SendMessage") && text.contains("a-queue"));
    }

    /// What becomes of a request to an endpoint like this one: the error's text, whether trying again
    /// may help, and whether nothing has happened for certain.
    async fn asked_at(endpoint: String, has_credentials: bool) -> (String, (bool, bool)) {
        let mut settings = sdk::for_effects(&sdk::load().await, true).into_builder();
        if !has_credentials {
            settings.set_credentials_provider(None);
        }
        let mut settings = aws_sdk_sqs::config::Builder::from(&settings.build());
        settings.set_endpoint_url(Some(endpoint));
        let sqs = aws_sdk_sqs::Client::from_conf(settings.build());
        let sent = Sent::default();
        let message = sqs.send_message().queue_url("http://localhost/0/q").message_body("x");
        let error = message.customize().interceptor(sent.clone()).send().await.unwrap_err();
        let error = told_apart(&ASKED, &error, sent.is_set());
        let is_retryable = error.failure() == &Failure::Retryable;
        (error.message().to_owned(), (is_retryable, error.said() == Said::NotSent))
    }

    /// Listens, takes one request, and answers `answer`, or hangs up.
    async fn endpoint(answer: Option<&'static str>) -> (String, Task<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"}") {
                assert_ne!(connection.read_buf(&mut seen).await.unwrap(), 0);
            }
            if let Some(answer) = answer {
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, serving)
    }

    #[tokio::test]
    async fn without_a_connection_nothing_has_happened() {
        // The port is free again once the listener is gone.
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        for host in ["127.0.0.1", "no-such-host.invalid"] {
            let (text, ends) = asked_at(format!("http://{host}:{port}"), true).await;
            assert!(text.contains("no connection to AWS could be made"), "{text}");
            assert_eq!(ends, (true, true));
        }
    }

    #[tokio::test]
    async fn without_credentials_nothing_is_sent() {
        let (text, ends) = asked_at("http://127.0.0.1:9".to_owned(), false).await;
        assert!(text.contains("could not be sent"), "{text}");
        assert_eq!(ends, (true, true));
    }

    #[tokio::test]
    async fn a_request_whose_answer_is_lost_may_have_happened() {
        let broken = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
        for answer in [None, Some("HTTP/1.1 200 OK\r\nconte"), Some(broken)] {
            let (url, _serving) = endpoint(answer).await;
            let (text, ends) = asked_at(url, true).await;
            assert!(text.contains("it may have happened"), "{answer:?}: {text}");
            assert_eq!(ends, (true, false), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_with_an_error_is_told_apart_by_what_it_says() {
        for (status, code, expected) in [
            ("400 Bad", "com.amazonaws.sqs#QueueDoesNotExist", (false, true)),
            ("400 Bad", "com.amazonaws.sqs#RequestThrottled", (true, true)),
            ("403 No", "AccessDeniedException", (false, true)),
            ("429 Slow", "TooManyRequestsException", (true, true)),
            ("500 Oops", "InternalError", (true, false)),
        ] {
            let body = format!("{{\"__type\":\"{code}\",\"message\":\"4242\"}}");
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
            let (url, _serving) = endpoint(Some(answer.leak())).await;
            let (text, ends) = asked_at(url, true).await;
            assert_eq!(ends, expected, "{code}: {text}");
            assert!(!text.contains("4242"), "{text}");
        }
    }
}
