//! Delivery by SES, which knows no idempotency key.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sesv2::Client;
use aws_sdk_sesv2::config::retry::RetryConfig;
use aws_sdk_sesv2::config::timeout::TimeoutConfig;
use aws_sdk_sesv2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sesv2::primitives::Blob;
use aws_sdk_sesv2::types::{Destination, EmailContent, MessageTag, RawMessage};
use tokio::sync::OnceCell;

use super::message::Mail;
use crate::context::Context;
use crate::error::HandlerError;
use crate::runtime::before;
use crate::sdk;

/// The tag that carries the effect's key: SES writes its own Message-ID.
const KEY_TAG: &str = "onlyonce-key";

const CONNECTING: Duration = Duration::from_secs(2);

/// SES, by the environment's settings, looked up when the first mail is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ses {
    client: Arc<OnceCell<Client>>,
}

/// What SES says when it was too busy to begin.
const NOT_NOW: [&str; 4] =
    ["TooManyRequestsException", "ThrottlingException", "Throttling", "LimitExceededException"];

impl Ses {
    async fn client(&self) -> &Client {
        let made = async {
            let settings = aws_sdk_sesv2::config::Builder::from(&sdk::load().await)
                // Whether it is sent again is for its guarantee to say, and for how long it is waited
                // for, its job.
                .retry_config(RetryConfig::disabled())
                .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECTING).build());
            Client::from_conf(settings.build())
        };
        self.client.get_or_init(|| made).await
    }

    /// Sends a mail, and answers with the id that SES gives it: it writes its own Message-ID.
    pub(super) async fn send(
        &self,
        context: &Context,
        mail: &Mail,
        timeout: Duration,
    ) -> Result<String, HandlerError> {
        let raw = RawMessage::builder().data(Blob::new(mail.bytes.as_slice())).build();
        let raw = raw.map_err(|error| HandlerError::terminal(error).not_sent())?;
        // Copies have it in common in what SES publishes of its mails.
        let key = mail.id.trim_start_matches('<').split('@').next().unwrap_or_default();
        let tag = MessageTag::builder().name(KEY_TAG).value(key).build();
        let tag = tag.map_err(|error| HandlerError::terminal(error).not_sent())?;
        let to = mail.envelope.to().iter().map(ToString::to_string).collect();
        let request = self
            .client()
            .await
            .send_email()
            .set_from_email_address(mail.envelope.from().map(ToString::to_string))
            .email_tags(tag)
            .destination(Destination::builder().set_to_addresses(Some(to)).build())
            .content(EmailContent::builder().raw(raw).build());
        let until = context.stop().min(context.now() + timeout);
        match before(context.clock(), until, request.send()).await {
            Some(Ok(sent)) => Ok(sent.message_id.unwrap_or_default()),
            Some(Err(error)) => Err(told(&error)),
            None => Err(HandlerError::retryable("SES did not answer in time")),
        }
    }
}

/// What a failure means. SES's words may quote an address, and are left out.
fn told<E: ProvideErrorMetadata>(error: &SdkError<E>) -> HandlerError {
    match error {
        SdkError::ConstructionFailure(_) => {
            HandlerError::retryable("the request to SES could not be made").not_sent()
        }
        SdkError::ServiceError(answer) => {
            let status = answer.raw().status().as_u16();
            let code = answer.err().code().unwrap_or("an error without a code");
            let message = format!("SES answered {status} {code}");
            match status {
                _ if NOT_NOW.contains(&code) => HandlerError::retryable(message).not_sent(),
                400..=499 => HandlerError::rejected(format!(
                    "{message}; see that the worker is allowed ses:SendEmail and its sender verified"
                )),
                _ => HandlerError::retryable(message),
            }
        }
        SdkError::ResponseError(_) => HandlerError::retryable("SES's answer cannot be read"),
        _ => HandlerError::retryable("SES could not be reached, or did not answer"),
    }
}
