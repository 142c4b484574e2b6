//! The `sqs` effect: one message, whose body is the payload.
//!
//! Its attribute `idempotency-key` is the effect's key, the same each time it is sent; a FIFO
//! queue gets that as its deduplication id, too. The worker needs `sqs:SendMessage` on the queue,
//! and `kms:GenerateDataKey` and `kms:Decrypt` where a key of your own encrypts it.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::types::MessageAttributeValue;
use serde::{Deserialize, Serialize};

use super::failure::{Asked, not_taken};
use super::request::Lazy;
use super::text::group;
use super::{Guarantee, KEY, is_fifo, shown};
use crate::context::Context;
use crate::effect::template::Template;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::EffectKey;
use crate::sdk::{SdkConfig, region_of};

/// The name this effect is recorded under, and part of its key.
const NAME: &str = "sqs";

/// One message per job.
#[derive(Debug)]
pub struct SqsEffect {
    /// The queue.
    pub queue_url: String,
    /// The message group; a FIFO queue needs one.
    pub group: Option<Template>,
    /// The attribute `job`, for a worker like this at the other end.
    pub job: Option<String>,
    /// Whether the key that it carries is the job's own instead of the effect's.
    pub passes_key: bool,
    /// What may happen after a crash.
    pub guarantee: Guarantee,
    /// The longest that sending may take.
    pub timeout: Duration,
    client: Lazy<Client>,
}

/// What SQS made of it.
#[derive(Serialize, Deserialize)]
struct Sent {
    message_id: Option<String>,
}

struct Message {
    body: String,
    group: Option<String>,
}

impl SqsEffect {
    /// Sends to this queue, without group or job, within ten seconds.
    pub fn new(queue_url: impl Into<String>, guarantee: Guarantee) -> Self {
        Self {
            queue_url: queue_url.into(),
            group: None,
            job: None,
            passes_key: false,
            guarantee,
            timeout: Duration::from_secs(10),
            client: Lazy::default(),
        }
    }

    /// Runs the effect for one call.
    pub async fn run(&self, Call { payload, context }: Call) -> Result<Reply, HandlerError> {
        let filled = self.group.as_ref().map(|template| group(template, &payload)).transpose();
        let group = filled.map_err(HandlerError::terminal)?;
        let message = Message { body: payload.canonical().into_owned(), group };
        let client = match context.outside() {
            Some(_) => None,
            None => Some(self.client.get(&context, self.guarantee, |sdk| self.client(sdk)).await?),
        };
        let request = message.body.clone();
        let send = |key| self.send(&context, client, key, message);
        let sent: Sent = self.guarantee.run(&context, NAME, request.as_bytes(), send).await?;
        Ok(Reply::of(&sent))
    }

    /// Where the queue is, whatever region the worker is in.
    fn client(&self, sdk: &SdkConfig) -> Client {
        let mut settings = aws_sdk_sqs::config::Builder::from(sdk);
        if let Some(region) = region_of(&self.queue_url) {
            settings.set_region(Some(Region::new(region.to_owned())));
        }
        Client::from_conf(settings.build())
    }

    async fn send(
        &self,
        context: &Context,
        client: Option<Client>,
        key: EffectKey,
        Message { body, group }: Message,
    ) -> Result<Sent, HandlerError> {
        let Some(client) = client else {
            return self.rehearse(context, &key, body).await;
        };
        let asked = Asked { action: "sqs:SendMessage", target: &self.queue_url };
        let attribute = |value: &str| {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value);
            value.build().map_err(not_taken)
        };
        let mut message = client
            .send_message()
            .queue_url(&self.queue_url)
            .message_body(body)
            .message_attributes(KEY, attribute(shown(context, &key, self.passes_key))?)
            .set_message_group_id(group);
        if let Some(job) = &self.job {
            message = message.message_attributes("job", attribute(job)?);
        }
        if is_fifo(&self.queue_url) {
            message = message.message_deduplication_id(key.as_str());
        }
        let request = |sent| message.customize().interceptor(sent).send();
        let answer = asked.send(context, self.timeout, request).await?;
        Ok(Sent { message_id: answer.message_id })
    }

    async fn rehearse(
        &self,
        context: &Context,
        key: &EffectKey,
        body: String,
    ) -> Result<Sent, HandlerError> {
        if let Some(receiver) = context.outside() {
            let queue = self.queue_url.rsplit('/').next().unwrap_or_default();
            self.guarantee.rehearse(context, receiver, (NAME, queue), key, body).await?;
        }
        Ok(Sent { message_id: None })
    }
}
