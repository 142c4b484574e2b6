//! The `lambda` effect: an existing function, in any language, behind the claim.
//!
//! It is invoked and waited for, with an event like
//! `{"idempotency-key": "..", "job": "..", "attempt": 1, "payload": ..}`. What it answers is kept
//! as the effect's result, up to 16 KB. The worker needs `lambda:InvokeFunction` on the function.
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

use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::Region;
use aws_sdk_lambda::operation::invoke::InvokeOutput;
use aws_sdk_lambda::primitives::Blob;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Guarantee;
use super::failure::{Asked, not_taken};
use super::rehearsal::rehearsed;
use super::request::{Lazy, region_of};
use crate::context::Context;
use crate::effect::MAX_RESULT;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::{EffectKey, MAX_RETRY_AFTER};
use crate::sdk::SdkConfig;

/// The name this effect is recorded under, and part of its key.
const NAME: &str = "lambda";

/// How much of what a function says of its failure is kept.
const MAX_SAID: usize = 500;

/// One invocation per job.
#[derive(Debug)]
pub struct LambdaEffect {
    /// The function, by name or ARN.
    pub function: String,
    /// Its version or alias.
    pub qualifier: Option<String>,
    /// What may happen after a crash.
    pub guarantee: Guarantee,
    /// The longest that one invocation is waited for.
    pub timeout: Duration,
    client: Lazy<Client>,
}

/// What the function gets.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Event<'a> {
    /// The same for each attempt.
    idempotency_key: &'a str,
    job: &'a str,
    /// From 1.
    attempt: u32,
    /// A raw one is a string.
    payload: &'a Value,
}

/// What the function answered.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// `None` if it is not JSON, or over the cap of an effect's result.
    answer: Option<Value>,
}

/// What a replay answers; the function's answer is kept with the effect.
#[derive(Serialize)]
struct Done {
    status: i32,
}

impl LambdaEffect {
    /// Invokes this function, waiting for it for a minute at most.
    pub fn new(function: impl Into<String>, guarantee: Guarantee) -> Self {
        Self {
            function: function.into(),
            qualifier: None,
            guarantee,
            timeout: Duration::from_secs(60),
            client: Lazy::default(),
        }
    }

    /// Runs the effect for one call.
    pub async fn run(&self, Call { payload, context }: Call) -> Result<Reply, HandlerError> {
        let request = payload.canonical();
        let raw;
        let payload = match payload.value() {
            Some(value) => value,
            None => {
                raw = Value::from(payload.text());
                &raw
            }
        };
        let client = match context.outside() {
            Some(_) => None,
            None => Some(self.client.get(&context, self.guarantee, |sdk| self.client(sdk)).await?),
        };
        let invoke = |key| self.invoke(&context, client, key, payload);
        let _: Answer = self.guarantee.run(&context, NAME, request.as_bytes(), invoke).await?;
        Ok(Reply::of(&Done { status: 200 }))
    }

    /// Where the function is, whatever region the worker is in.
    fn client(&self, sdk: &SdkConfig) -> Client {
        let mut settings = aws_sdk_lambda::config::Builder::from(sdk);
        if let Some(region) = region_of(&self.function) {
            settings.set_region(Some(Region::new(region)));
        }
        Client::from_conf(settings.build())
    }

    async fn invoke(
        &self,
        context: &Context,
        client: Option<Client>,
        key: EffectKey,
        payload: &Value,
    ) -> Result<Answer, HandlerError> {
        let event = Event {
            idempotency_key: key.as_str(),
            job: context.job(),
            attempt: context.attempt(),
            payload,
        };
        let event = serde_json::to_string(&event).map_err(not_taken)?;
        let Some(client) = client else {
            return self.rehearse(context, &key, event).await;
        };
        let asked = Asked { action: "lambda:InvokeFunction", target: &self.function };
        let invocation = client
            .invoke()
            .function_name(&self.function)
            .set_qualifier(self.qualifier.clone())
            .payload(Blob::new(event));
        let request = |sent| invocation.customize().interceptor(sent).send();
        let output = asked.send(context, self.timeout, request).await?;
        match output.function_error() {
            Some(_) => Err(failed(&self.function, &output)),
            None => Ok(Answer { answer: kept(&output) }),
        }
    }

    async fn rehearse(
        &self,
        context: &Context,
        key: &EffectKey,
        event: String,
    ) -> Result<Answer, HandlerError> {
        if let Some(receiver) = context.outside() {
            let function = self.function.rsplit("function:").next().unwrap_or_default();
            rehearsed(context, receiver, (NAME, function), self.guarantee, key, event).await?;
        }
        Ok(Answer { answer: None })
    }
}

fn bytes(output: &InvokeOutput) -> &[u8] {
    output.payload().map(AsRef::as_ref).unwrap_or_default()
}

/// The answer, if it leaves room for the rest of the result.
fn kept(output: &InvokeOutput) -> Option<Value> {
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
struct Said {
    error_type: Option<String>,
    error_message: Option<String>,
}

/// Told apart by what the function said.
fn failed(function: &str, output: &InvokeOutput) -> HandlerError {
    let said: Said = serde_json::from_slice(bytes(output)).unwrap_or_default();
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
