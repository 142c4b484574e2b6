//! One request to AWS: settings that are made once, a limit in time, and what is known of a
//! failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_sqs::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_sqs::error::{BoxError, ProvideErrorMetadata, SdkError};
use tokio::sync::OnceCell;

use super::Guarantee;
use super::failure::{Asked, nothing_happened, told_apart, unanswered};
use crate::context::Context;
use crate::error::HandlerError;
use crate::runtime::before;
use crate::sdk::{self, SdkConfig};

/// What is looked up when the first effect needs it: a worker without one pays nothing.
struct Settings {
    kept: SdkConfig,
    fresh: SdkConfig,
}

/// A job's client, made at its first use.
#[derive(Debug)]
pub(super) struct Lazy<C>(OnceCell<C>);

impl<C> Default for Lazy<C> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

impl<C: Clone> Lazy<C> {
    /// The client, before the effect begins: without it nothing is sent, for certain.
    pub async fn get(
        &self,
        context: &Context,
        guarantee: Guarantee,
        make: impl FnOnce(&SdkConfig) -> C,
    ) -> Result<C, HandlerError> {
        static SETTINGS: OnceCell<Settings> = OnceCell::const_new();
        let made = self.0.get_or_init(async || {
            let load = async || {
                let loaded = sdk::load().await;
                let [kept, fresh] = [false, true].map(|fresh| sdk::for_effects(&loaded, fresh));
                Settings { kept, fresh }
            };
            let settings = SETTINGS.get_or_init(load).await;
            make(match guarantee {
                Guarantee::AtMostOnce => &settings.fresh,
                Guarantee::Keyed { .. } | Guarantee::AtLeastOnce => &settings.kept,
            })
        });
        match before(context.clock(), context.stop(), made).await {
            Some(client) => Ok(client.clone()),
            None => Err(nothing_happened(
                "no region and credentials of AWS were found in time; see that the worker has them",
            )),
        }
    }
}

/// Notes when a request is about to go out: before that, nothing can have happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent(Arc<AtomicBool>);

impl Sent {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Intercept for Sent {
    fn name(&self) -> &'static str {
        "Sent"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Asked<'_> {
    /// Sends one request, which takes `timeout` at most and never goes past the attempt's stop.
    pub(super) async fn send<T, E, Fut>(
        &self,
        context: &Context,
        timeout: Duration,
        request: impl FnOnce(Sent) -> Fut,
    ) -> Result<T, HandlerError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        Fut: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    {
        let sent = Sent::default();
        let until = context.stop().min(context.now() + timeout);
        let answered = before(context.clock(), until, request(sent.clone())).await;
        let is_sent = sent.is_set();
        match answered {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(told_apart(self, &error, is_sent)),
            None => Err(unanswered(self, is_sent)),
        }
    }
}

/// The region that an ARN names.
pub(super) fn region_of(arn: &str) -> Option<String> {
    let mut parts = arn.split(':');
    let region = (parts.next() == Some("arn")).then(|| parts.nth(2)).flatten();
    region.filter(|region| !region.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_names_its_region_and_a_name_none() {
        let arn = "arn:aws:lambda:eu-central-1:000000000000:function:charge";
        assert_eq!(region_of(arn).as_deref(), Some("eu-central-1"));
        assert_eq!(region_of("charge"), None);
        assert_eq!(region_of("arn:aws:x"), None);
    }
}
