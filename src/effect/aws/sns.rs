//! The `sns` effect: one message published, which is the payload.
//!
//! Its attribute `idempotency-key` is the effect's key, the same each time it is published; a FIFO
//! topic gets that as its deduplication id, too. The worker needs `sns:Publish` on the topic, and
//! `kms:GenerateDataKey` and `kms:Decrypt` where a key of your own encrypts it.

use std::time::Duration;

use aws_sdk_sns::Client;
use aws_sdk_sns::config::Region;
use aws_sdk_sns::types::MessageAttributeValue;
use serde::{Deserialize, Serialize};

use super::failure::{Asked, not_taken};
use super::request::{Lazy, region_of};
use super::text::{group, subject};
use super::{Guarantee, KEY, is_fifo, shown};
use crate::context::Context;
use crate::effect::template::Template;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::payload::Payload;
use crate::protocol::EffectKey;
use crate::sdk::SdkConfig;

/// The name this effect is recorded under, and part of its key.
const NAME: &str = "sns";

/// One message per job.
#[derive(Debug)]
pub struct SnsEffect {
    /// The topic.
    pub topic_arn: String,
    /// The subject of the mails that the topic may send.
    pub subject: Option<Template>,
    /// The message group; a FIFO topic needs one.
    pub group: Option<Template>,
    /// The attribute `job`, for a worker like this at the other end.
    pub job: Option<String>,
    /// Whether the key that it carries is the job's own instead of the effect's.
    pub passes_key: bool,
    /// What may happen after a crash.
    pub guarantee: Guarantee,
    /// The longest that publishing may take.
    pub timeout: Duration,
    client: Lazy<Client>,
}

/// What SNS made of it.
#[derive(Serialize, Deserialize)]
struct Published {
    message_id: Option<String>,
}

struct Message {
    body: String,
    subject: Option<String>,
    group: Option<String>,
}

impl SnsEffect {
    /// Publishes to this topic, without subject, group or job, within ten seconds.
    pub fn new(topic_arn: impl Into<String>, guarantee: Guarantee) -> Self {
        Self {
            topic_arn: topic_arn.into(),
            subject: None,
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
        let message = self.message(&payload).map_err(HandlerError::terminal)?;
        let client = match context.outside() {
            Some(_) => None,
            None => Some(self.client.get(&context, self.guarantee, |sdk| self.client(sdk)).await?),
        };
        let request = message.body.clone();
        let publish = |key| self.publish(&context, client, key, message);
        let published: Published =
            self.guarantee.run(&context, NAME, request.as_bytes(), publish).await?;
        Ok(Reply::of(&published))
    }

    fn message(&self, payload: &Payload) -> Result<Message, String> {
        let subject = self.subject.as_ref().map(|text| subject(text, payload)).transpose()?;
        let group = self.group.as_ref().map(|text| group(text, payload)).transpose()?;
        Ok(Message { body: payload.canonical().into_owned(), subject, group })
    }

    /// Where the topic is, whatever region the worker is in.
    fn client(&self, sdk: &SdkConfig) -> Client {
        let mut settings = aws_sdk_sns::config::Builder::from(sdk);
        if let Some(region) = region_of(&self.topic_arn) {
            settings.set_region(Some(Region::new(region)));
        }
        Client::from_conf(settings.build())
    }

    async fn publish(
        &self,
        context: &Context,
        client: Option<Client>,
        key: EffectKey,
        Message { body, subject, group }: Message,
    ) -> Result<Published, HandlerError> {
        let Some(client) = client else {
            return self.rehearse(context, &key, body).await;
        };
        let asked = Asked { action: "sns:Publish", target: &self.topic_arn };
        let attribute = |value: &str| {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value);
            value.build().map_err(not_taken)
        };
        let mut message = client
            .publish()
            .topic_arn(&self.topic_arn)
            .message(body)
            .message_attributes(KEY, attribute(shown(context, &key, self.passes_key))?)
            .set_subject(subject)
            .set_message_group_id(group);
        if let Some(job) = &self.job {
            message = message.message_attributes("job", attribute(job)?);
        }
        if is_fifo(&self.topic_arn) {
            message = message.message_deduplication_id(key.as_str());
        }
        let request = |sent| message.customize().interceptor(sent).send();
        let answer = asked.send(context, self.timeout, request).await?;
        Ok(Published { message_id: answer.message_id })
    }

    async fn rehearse(
        &self,
        context: &Context,
        key: &EffectKey,
        body: String,
    ) -> Result<Published, HandlerError> {
        if let Some(receiver) = context.outside() {
            let topic = self.topic_arn.rsplit(':').next().unwrap_or_default();
            self.guarantee.rehearse(context, receiver, (NAME, topic), key, body).await?;
        }
        Ok(Published { message_id: None })
    }
}
