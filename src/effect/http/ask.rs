//! Asking the provider what became of an earlier request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use super::{Answer, Request, UrlTemplate, guard, retry_after, text};
use crate::effect::Probe;
use crate::effect::rehearsal::PROBE;
use crate::error::HandlerError;
use crate::payload::Payload;
use crate::protocol::EffectKey;

/// Stands for the effect's key in the URL that is asked.
const EFFECT_KEY: &str = "effect_key";

/// Looks for the effect in an answer's JSON: null, false and what is empty mean that it is not there.
pub type Found = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// How a provider is asked: by a GET that answers 2xx if the effect was done, and 404 or 410 if it
/// was not.
#[derive(Clone)]
pub struct Ask {
    /// Where, with `{field}` from the payload and `{effect_key}`.
    pub url: UrlTemplate,
    /// Where the answer is a list: what must be found in it.
    pub found: Option<Found>,
    /// For how long after a request has ended it may not be found yet.
    pub lag: Duration,
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("url", &self.url)
            .field("lag", &self.lag)
            .finish_non_exhaustive()
    }
}

impl Ask {
    /// Refuses a payload that nobody could ask about, before anything is sent.
    pub(super) fn check(&self, payload: &Payload) -> Result<(), String> {
        self.url.fill(payload, &[(EFFECT_KEY, "key")]).map(drop)
    }

    /// For how long after it was begun a request is not believed to be undone.
    pub(super) fn within(&self, timeout: Duration) -> Duration {
        timeout.saturating_add(self.lag)
    }
}

impl Request<'_> {
    /// Asks once. What is no clear answer is an error, and asked again by the next attempt.
    pub(super) async fn ask(
        &self,
        ask: &Ask,
        payload: &Payload,
        key: &EffectKey,
    ) -> Result<Probe<Answer>, HandlerError> {
        let named = [(EFFECT_KEY, key.as_str())];
        let url = ask.url.fill(payload, &named).map_err(HandlerError::unknown)?;
        let (client, url, mut headers) = self.way_to(&url)?;
        let is_rehearsal = self.context.outside().is_some();
        if is_rehearsal {
            headers.insert(PROBE, HeaderValue::from_static("yes"));
        }
        if let Some((secret, read)) = &self.secret {
            headers.insert(secret.header().clone(), read.value());
        }
        let asked = client.request(Method::GET, url).headers(headers).timeout(self.time_left());
        let response = asked.send().await.map_err(guard::failed)?;
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(Probe::NotDone);
        }
        if !status.is_success() {
            let message = format!("asked what became of it, the provider answered {status}");
            return Err(match retry_after(response.headers(), self.context.now()) {
                Some(wait) => HandlerError::retry_after(wait, message),
                None => HandlerError::retryable(message),
            });
        }
        let body = text(response).await;
        let answer = |body| Probe::Done(Answer { status: status.as_u16(), body });
        // Who stands for the provider knows whether it was there, and not in which words.
        let Some(found) = ask.found.as_ref().filter(|_| !is_rehearsal) else {
            return Ok(answer(body));
        };
        // Cut off or too long, it may have been in the rest.
        let Some(json) = body.and_then(|body| serde_json::from_str::<Value>(&body).ok()) else {
            return Ok(Probe::Unknown);
        };
        Ok(match found(&json) {
            Value::Null | Value::Bool(false) => Probe::NotDone,
            Value::String(text) if text.is_empty() => Probe::NotDone,
            Value::Array(items) if items.is_empty() => Probe::NotDone,
            Value::Object(fields) if fields.is_empty() => Probe::NotDone,
            there => answer(Some(there.to_string())),
        })
    }
}
