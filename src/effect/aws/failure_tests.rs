//! What each error says, of codes and over real connections.

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
