//! The `http` effect: one request made from the payload. What its answer means is the provider's
//! to say: see [`provider`]. Redirects are not followed; a 401 or 403 is tried once more if the
//! secret has changed.

mod ask;
mod body;
pub(super) mod guard;
pub mod provider;

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;

pub use ask::{Ask, Found};
pub use body::{BodyForm, InvalidTemplate, UrlTemplate};
pub use guard::AllowedHost;
pub use provider::Provider;

use self::provider::Meaning;
use super::{MAX_RESULT, rehearsal};
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::{EffectKey, MAX_RETRY_AFTER, Timestamp};
use crate::secret::{Reading, Refused, Secret};

/// The name this effect is recorded under, and part of the key its provider sees.
const NAME: &str = "http";

/// What may happen after a crash.
#[derive(Clone, Debug)]
pub enum Guarantee {
    /// Sent again under the same key: once at the provider.
    Keyed {
        /// The header that carries the key.
        header: HeaderName,
        /// For how long the provider remembers it, if that is known.
        window: Option<Duration>,
        /// How the provider is asked where the key cannot tell.
        ask: Option<Ask>,
    },
    /// Sent again once the provider has said that it was not done.
    Reconcile {
        /// The header that carries the key, if one does.
        header: Option<HeaderName>,
        /// How the provider is asked.
        ask: Ask,
    },
    /// Sent again, without a key.
    AtLeastOnce,
    /// Never sent again by itself.
    AtMostOnce,
}

impl Guarantee {
    /// As the jobs file says it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Keyed { .. } => "keyed",
            Self::Reconcile { .. } => "reconcile",
            Self::AtLeastOnce => "at-least-once",
            Self::AtMostOnce => "at-most-once",
        }
    }
}

/// One request per job.
#[derive(Clone, Debug)]
pub struct HttpEffect {
    /// Whose answers these are.
    pub provider: Provider,
    /// The method.
    pub method: Method,
    /// Where to, with `{field}` from the payload.
    pub url: UrlTemplate,
    /// How the payload is written; `None` sends no body.
    pub body: Option<BodyForm>,
    /// What may happen after a crash.
    pub guarantee: Guarantee,
    /// A header whose value is secret, and never logged.
    pub secret: Option<Secret>,
    /// The longest one request may take.
    pub timeout: Duration,
    /// Private targets that are wanted all the same.
    pub allow_hosts: Vec<AllowedHost>,
}

/// What came back.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    status: u16,
    /// The body as text, if it is text and not over the cap of an effect's result.
    body: Option<String>,
}

/// What a replay answers; the body is kept with the effect.
#[derive(Serialize)]
struct Done {
    status: u16,
}

impl HttpEffect {
    /// Runs the effect for one call.
    pub async fn run(&self, call: Call) -> Result<Reply, HandlerError> {
        let Call { payload, context } = call;
        let url = self.url.fill(&payload, &[]).map_err(HandlerError::terminal)?;
        if let Guarantee::Keyed { ask: Some(ask), .. } | Guarantee::Reconcile { ask, .. } =
            &self.guarantee
        {
            ask.check(&payload).map_err(HandlerError::terminal)?;
        }
        let body = match self.body {
            Some(form) => Some(form.write(&payload).map_err(HandlerError::terminal)?),
            None => None,
        };
        // Before the effect begins: without its secret it has not been sent, for certain.
        let secret = match &self.secret {
            // Secrets are for the hosts they belong to.
            _ if context.outside().is_some() => None,
            Some(secret) => Some((secret, secret.read(context.clock(), context.stop()).await?)),
            None => None,
        };
        let effect = context.effect(NAME).request_bytes(&self.sent(&url, body.as_deref()));
        let request = Request { effect: self, context: &context, url, body, secret };
        let answer: Answer = match &self.guarantee {
            Guarantee::Keyed { header, window, ask } => {
                let effect = match window {
                    Some(window) => effect.window(*window),
                    None => effect,
                };
                let send = async |key| request.send(Some((header, key))).await;
                match ask {
                    None => effect.keyed(send).await?,
                    Some(ask) => {
                        let effect = effect.settles_within(ask.within(self.timeout));
                        effect
                            .keyed_or_ask(async |key| request.ask(ask, &payload, &key).await, send)
                            .await?
                    }
                }
            }
            Guarantee::Reconcile { header, ask } => {
                let effect = effect.settles_within(ask.within(self.timeout));
                let probe = async |key| request.ask(ask, &payload, &key).await;
                let send =
                    async |key| request.send(header.as_ref().map(|header| (header, key))).await;
                effect.reconcile(probe, send).await?
            }
            Guarantee::AtLeastOnce => effect.at_least_once(|| request.send(None)).await?,
            Guarantee::AtMostOnce => effect.at_most_once(|| request.send(None)).await?,
        };
        Ok(Reply::of(&Done { status: answer.status }))
    }

    /// What is sent under a key, for its digest.
    fn sent(&self, url: &Url, body: Option<&str>) -> Vec<u8> {
        [self.method.as_str(), " ", url.as_str(), "\n", body.unwrap_or_default()].concat().into()
    }
}

/// Secrets are read once, and shown to no one.
type ReadSecret<'a> = (&'a Secret, Reading);

struct Request<'a> {
    effect: &'a HttpEffect,
    context: &'a Context,
    url: Url,
    body: Option<String>,
    secret: Option<ReadSecret<'a>>,
}

impl Request<'_> {
    /// Sends it; once more if the secret it was refused for has changed meanwhile.
    async fn send(&self, key: Option<(&HeaderName, EffectKey)>) -> Result<Answer, HandlerError> {
        let context = self.context;
        let value = self.secret.as_ref().map(|(secret, read)| (*secret, read));
        let mut response = self.send_with(value, key.as_ref()).await?;
        let is_refused =
            matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let (true, Some((secret, used))) = (is_refused, &self.secret) {
            match secret.refused(used, context.clock(), context.stop()).await? {
                Refused::Changed(now) => {
                    response = self.send_with(Some((*secret, &now)), key.as_ref()).await?;
                }
                Refused::Unchanged => {}
                Refused::TooSoon(wait) => {
                    let message = format!(
                        "the answer was {}; its secret was read within the last minute, and is read \
                         again after it",
                        response.status()
                    );
                    return Err(HandlerError::retry_after(wait, message).not_sent());
                }
            }
        }
        told_apart(self.effect.provider, response, context.now()).await
    }

    async fn send_with(
        &self,
        secret: Option<(&Secret, &Reading)>,
        key: Option<&(&HeaderName, EffectKey)>,
    ) -> Result<Response, HandlerError> {
        let (client, url, mut headers) = self.way_to(&self.url)?;
        if let Some((header, key)) = key {
            if self.context.outside().is_some() {
                headers.insert(rehearsal::KEY_HEADER, HeaderValue::from((*header).clone()));
            }
            let key = HeaderValue::from_str(key.as_str()).map_err(HandlerError::terminal)?;
            headers.insert((*header).clone(), key);
        }
        if let Some((secret, read)) = secret {
            headers.insert(secret.header().clone(), read.value());
        }
        if let Some(form) = self.effect.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
        }
        let mut request = client.request(self.effect.method.clone(), url).headers(headers);
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        request.timeout(self.time_left()).send().await.map_err(guard::failed)
    }

    /// The client for a URL, and that URL with the headers that go with it.
    fn way_to(&self, url: &Url) -> Result<(Client, Url, HeaderMap), HandlerError> {
        let Some(receiver) = self.context.outside() else {
            let client = guard::client_for(url, &self.effect.allow_hosts)?;
            return Ok((client, url.clone(), HeaderMap::new()));
        };
        let headers = rehearsal::headers(self.context, self.effect.guarantee.name())?;
        let (client, url) = guard::client_instead(url.clone(), receiver)?;
        Ok((client, url, headers))
    }

    fn time_left(&self) -> Duration {
        self.effect.timeout.min(self.context.stop().remaining(self.context.now()))
    }
}

async fn told_apart(
    provider: Provider,
    response: Response,
    now: Timestamp,
) -> Result<Answer, HandlerError> {
    let (status, headers) = (response.status(), response.headers().clone());
    // The effect may have happened: an answer that breaks off still has its status.
    let body = text(response).await;
    let meaning = provider.meaning(status, &headers, body.as_deref());
    let message = match body.as_deref().and_then(|body| provider.reason(body)) {
        Some(reason) => format!("the answer was {status} ({reason})"),
        None => format!("the answer was {status}"),
    };
    let later = |message| match retry_after(&headers, now) {
        Some(wait) => HandlerError::retry_after(wait, message),
        None => HandlerError::retryable(message),
    };
    Err(match meaning {
        Meaning::Done => return Ok(Answer { status: status.as_u16(), body }),
        Meaning::Later => later(message),
        Meaning::NotYet => later(message).not_sent(),
        Meaning::Rejected => HandlerError::rejected(message),
        Meaning::TurnedAway => HandlerError::terminal(message).not_sent(),
        Meaning::Mismatch => HandlerError::mismatch(message),
        Meaning::Final => HandlerError::terminal(message),
        Meaning::Unclear => HandlerError::unknown(message),
    })
}

/// Seconds or a date, from one second to what a queue can wait.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            let since_epoch = date.duration_since(std::time::UNIX_EPOCH).ok()?;
            since_epoch.saturating_sub(Duration::from_millis(now.millis()))
        }
    };
    Some(wait.clamp(Duration::from_secs(1), MAX_RETRY_AFTER))
}

/// The body, if it is text and leaves room for the rest of the result; read no further than that.
async fn text(mut response: Response) -> Option<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_RESULT {
            return None;
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    // As JSON, with its quotes escaped, it must still fit.
    let written = serde_json::to_string(&text).ok()?;
    (written.len() + 64 <= MAX_RESULT).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(value: &'static str, now: u64) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
        retry_after(&headers, Timestamp::from_millis(now))
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_within_bounds() {
        assert_eq!(wait("7", 0), Some(Duration::from_secs(7)));
        assert_eq!(wait("0", 0), Some(Duration::from_secs(1)));
        assert_eq!(wait("99999999999", 0), Some(MAX_RETRY_AFTER));
        // 784111777 s after the epoch.
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait(date, 784_111_767_000), Some(Duration::from_secs(10)));
        assert_eq!(wait(date, 784_111_999_000), Some(Duration::from_secs(1)));
        assert_eq!(wait("soon", 0), None);
        assert_eq!(wait("-1", 0), None);
    }
}

#[cfg(any(test, fuzzing))]
#[path = "fuzz_tests.rs"]
pub(crate) mod fuzz;
