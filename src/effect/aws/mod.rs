//! The effects that call AWS: one request each, made from the payload, its failure told apart.
//!
//! A request that was never sent, or that AWS has throttled, has done nothing and is worth trying
//! again. What AWS refuses (no such queue, no permission, a request it will not take) has done
//! nothing and is terminal. A lost answer, no answer in time and an answer of 5xx leave open what
//! has happened. Each attempt makes one request: the SDK repeats nothing by itself.

mod answer;
pub mod eventbridge;
mod failure;
pub mod lambda;
mod request;
pub mod sns;
pub mod sqs;
mod text;

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::header::HeaderValue;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rehearsal;
use crate::context::Context;
use crate::error::HandlerError;
use crate::protocol::EffectKey;

/// What may happen after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Sent again under the same key, which somebody at the other end knows.
    Keyed {
        /// For how long it is known there, if that is known here.
        window: Option<Duration>,
    },
    /// Sent again.
    AtLeastOnce,
    /// Not sent again by itself.
    AtMostOnce,
}

/// The attribute, or field, that carries the effect's key.
pub const KEY: &str = "idempotency-key";

/// For how long SQS and SNS remember a deduplication id.
pub const FIFO_WINDOW: Duration = Duration::from_secs(300);

impl Guarantee {
    /// For how long a key is known at the other end, as far as that is known here.
    pub fn window(self) -> Option<Duration> {
        match self {
            Self::Keyed { window } => window,
            Self::AtLeastOnce | Self::AtMostOnce => None,
        }
    }

    /// Runs the effect `name`, whose `request` is this. What it sends carries the key under each
    /// guarantee: who receives it may tell copies apart by it.
    async fn run<T, Fut>(
        self,
        context: &Context,
        name: &str,
        request: &[u8],
        send: impl FnOnce(EffectKey) -> Fut,
    ) -> Result<T, HandlerError>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<T, HandlerError>>,
    {
        let effect = context.effect(name).request_bytes(request);
        let key = EffectKey::new(context.id(), name, 0);
        match self {
            Self::Keyed { window: Some(window) } => effect.window(window).keyed(send).await,
            Self::Keyed { window: None } => effect.keyed(send).await,
            Self::AtLeastOnce => effect.at_least_once(|| send(key)).await,
            Self::AtMostOnce => effect.at_most_once(|| send(key)).await,
        }
    }

    /// As the jobs file says it.
    const fn name(self) -> &'static str {
        match self {
            Self::Keyed { .. } => "keyed",
            Self::AtLeastOnce => "at-least-once",
            Self::AtMostOnce => "at-most-once",
        }
    }

    /// Sends what would go to `target` to the receiver that stands for it.
    async fn rehearse(
        self,
        context: &Context,
        receiver: SocketAddr,
        target: (&str, &str),
        key: &EffectKey,
        body: String,
    ) -> Result<(), HandlerError> {
        let mut headers = rehearsal::headers(context, self.name())?;
        let value = HeaderValue::from_str(key.as_str()).map_err(HandlerError::terminal)?;
        headers.insert(KEY, value);
        if let Self::Keyed { .. } = self {
            headers.insert(rehearsal::KEY_HEADER, HeaderValue::from_static(KEY));
        }
        let json = "application/json";
        rehearsal::rehearsed(context, receiver, target, headers, json, body.into_bytes()).await
    }
}

/// The key that a message shows: the effect's, or the job's own, which an event of an outbox has as
/// its id.
fn shown<'a>(context: &'a Context, key: &'a EffectKey, passes_key: bool) -> &'a str {
    if passes_key { context.key().as_str() } else { key.as_str() }
}

/// Whether this queue or topic is first in, first out: its name says so.
pub fn is_fifo(name: &str) -> bool {
    name.ends_with(".fifo")
}
