//! What a function answered: kept, or why it failed.
//!
//! A function that fails is invoked again by the job's retries, unless the error's name (the
//! `errorType`: a Python exception's class, a Node error's `name`) says otherwise:
//!
//! | error's name | means |
//! |---|---|
//! | `Rejected` | nothing has happened, and trying again as it is cannot help |
//! | `Terminal` | trying again cannot help |
//! | `RetryAfter` | worth trying again after the seconds its message begins with: `"30"` |
//! | any other | worth trying again by the job's policy |

use std::time::Duration;

use aws_sdk_lambda::operation::invoke::InvokeOutput;
use serde::Deserialize;
use serde_json::Value;

use crate::effect::MAX_RESULT;
use crate::error::HandlerError;
use crate::protocol::MAX_RETRY_AFTER;

/// How much of what a function says of its failure is kept.
const MAX_SAID: usize = 500;

fn bytes(output: &InvokeOutput) -> &[u8] {
    output.payload().map(AsRef::as_ref).unwrap_or_default()
}

/// The answer, if it leaves room for the rest of the result.
pub(super) fn kept(output: &InvokeOutput) -> Option<Value> {
    let answer = bytes(output);
    if answer.len() > MAX_RESULT {
        return None;
    }
    let answer: Value = serde_json::from_slice(answer).ok()?;
    (answer.to_string().len() + 64 <= MAX_RESULT).then_some(answer)
}

/// What every runtime of Lambda's says of an error that its function did not catch.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    error_type: Option<String>,
    error_message: Option<String>,
}

/// Told apart by what the function said.
pub(super) fn failed(function: &str, output: &InvokeOutput) -> HandlerError {
    let said: Told = serde_json::from_slice(bytes(output)).unwrap_or_default();
    let name = said.error_type.unwrap_or_default();
    let text = said.error_message.unwrap_or_default();
    let message: String = format!("the function {function:?} failed: {name}: {text}");
    let message: String = message.chars().take(MAX_SAID).collect();
    // Some runtimes say the package, too.
    match name.rsplit(['.', ':', '$', '/']).next() {
        Some("Rejected") => HandlerError::rejected(message),
        Some("Terminal") => HandlerError::terminal(message),
        Some("RetryAfter") => match seconds(&text) {
            Some(wait) => HandlerError::retry_after(wait, message),
            None => HandlerError::retryable(message),
        },
        _ => HandlerError::retryable(message),
    }
}

/// The number that a text begins with, from one second to what a queue can wait.
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let seconds = text.get(..end)?.parse().ok()?;
    Some(Duration::from_secs(seconds).clamp(Duration::from_secs(1), MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use aws_sdk_lambda::primitives::Blob;

    use super::*;
    use crate::protocol::{Failure, Said};

    fn output(payload: &str) -> InvokeOutput {
        InvokeOutput::builder().status_code(200).payload(Blob::new(payload)).build()
    }

    #[test]
    fn a_failure_is_told_apart_by_the_errors_name() {
        let wait = Failure::RetryAfter(Duration::from_secs(30));
        for (name, text, failure, is_rejection) in [
            ("Rejected", "card declined", Failure::Terminal, true),
            ("com.acme.Rejected", "", Failure::Terminal, true),
            ("Terminal", "no such order", Failure::Terminal, false),
            ("RetryAfter", "30 seconds, they say", wait, false),
            ("RetryAfter", "soon", Failure::Retryable, false),
            ("ValueError", "x", Failure::Retryable, false),
            ("NotTerminal", "x", Failure::Retryable, false),
            ("Sandbox.Timedout", "Task timed out after 3.00 seconds", Failure::Retryable, false),
        ] {
            let said = serde_json::json!({ "errorType": name, "errorMessage": text });
            let error = failed("charge", &output(&said.to_string()));
            let said = if is_rejection { Said::Rejected } else { Said::Nothing };
            assert_eq!((error.failure(), error.said()), (&failure, said), "{name}");
            assert!(error.message().contains(name) && error.message().contains(text));
        }
    }

    #[test]
    fn what_a_function_says_is_capped_and_may_be_no_json() {
        let said = serde_json::json!({ "errorType": "E", "errorMessage": "é".repeat(10_000) });
        let error = failed("charge", &output(&said.to_string()));
        assert_eq!(error.message().chars().count(), MAX_SAID);
        assert_eq!(failed("charge", &output("oops")).failure(), &Failure::Retryable);
    }

    #[test]
    fn a_wait_is_within_bounds() {
        assert_eq!(seconds("0"), Some(Duration::from_secs(1)));
        assert_eq!(seconds(" 99999999999 s"), Some(MAX_RETRY_AFTER));
        assert_eq!(seconds("-5"), None);
        assert_eq!(seconds(""), None);
    }

    #[test]
    fn an_answer_is_kept_if_it_fits() {
        assert_eq!(kept(&output("{\"id\": 7}")), Some(serde_json::json!({ "id": 7 })));
        assert_eq!(kept(&output("no json")), None);
        let large = |length: usize| kept(&output(&format!("{:?}", "x".repeat(length))));
        assert!(large(MAX_RESULT - 100).is_some());
        assert!(large(MAX_RESULT).is_none());
    }
}
