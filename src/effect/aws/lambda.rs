//! The `lambda` effect: an existing function, in any language, behind the claim.
//!
//! It is invoked and waited for, with an event like
//! `{"idempotency-key": "..", "job": "..", "attempt": 1, "payload": ..}`. What it answers is kept
//! as the effect's result, up to 16 KB. The worker needs `lambda:InvokeFunction` on the function.
//!
//! How it fails decides what comes next: see `answer`.

use std::time::Duration;

use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::Region;
use aws_sdk_lambda::primitives::Blob;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Guarantee;
use super::answer::{failed, kept};
use super::failure::{Asked, not_taken};
use super::request::{Lazy, region_of};
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::EffectKey;
use crate::sdk::SdkConfig;

/// The name this effect is recorded under, and part of its key.
const NAME: &str = "lambda";

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
            self.guarantee.rehearse(context, receiver, (NAME, function), key, event).await?;
        }
        Ok(Answer { answer: None })
    }
}
