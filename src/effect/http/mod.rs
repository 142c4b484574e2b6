//! The `http` effect: one request made from the payload, its answer told apart.
//!
//! 2xx is done. 408, 409, 425, 429 and 5xx are worth trying again, after `Retry-After` where it is
//! given. Any other answer is terminal, 401 and 403 only after a secret that has changed was tried;
//! redirects are not followed.

mod body;
pub(super) mod guard;

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

pub use body::{BodyForm, InvalidTemplate, UrlTemplate};
pub use guard::AllowedHost;

use super::MAX_RESULT;
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::{EffectKey, MAX_RETRY_AFTER, Timestamp};
use crate::secret::{Reading, Refused, Secret};

/// The name this effect is recorded under, and part of the key its provider sees.
const NAME: &str = "http";

/// Tells the local receiver of `dev` which record a request belongs to.
pub(crate) const DEV_RECORD_HEADER: &str = "onlyonce-dev-record";
/// Tells it which header carries the key.
pub(crate) const DEV_KEY_HEADER: &str = "onlyonce-dev-key-header";

/// What may happen after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Sent again under the same key: once at the provider.
    Keyed {
        /// The header that carries the key.
        header: HeaderName,
        /// For how long the provider remembers it, if that is known.
        window: Option<Duration>,
    },
    /// Sent again, without a key.
    AtLeastOnce,
}

/// One request per job.
#[derive(Clone, Debug)]
pub struct HttpEffect {
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
        let url = self.url.fill(&payload).map_err(HandlerError::terminal)?;
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
        let request = Request { effect: self, context: &context, url, body };
        let effect = context.effect(NAME);
        let answer: Answer = match &self.guarantee {
            Guarantee::Keyed { header, window } => {
                let effect = match window {
                    Some(window) => effect.window(*window),
                    None => effect,
                };
                effect.keyed(|key| request.send(secret, Some((header, key)))).await?
            }
            Guarantee::AtLeastOnce => effect.at_least_once(|| request.send(secret, None)).await?,
        };
        Ok(Reply::of(&Done { status: answer.status }))
    }
}

struct Request<'a> {
    effect: &'a HttpEffect,
    context: &'a Context,
    url: url::Url,
    body: Option<String>,
}

impl Request<'_> {
    /// Sends it; once more if the secret it was refused for has changed meanwhile.
    async fn send(
        &self,
        secret: Option<(&Secret, Reading)>,
        key: Option<(&HeaderName, EffectKey)>,
    ) -> Result<Answer, HandlerError> {
        let context = self.context;
        let value = secret.as_ref().map(|(secret, read)| (*secret, read));
        let mut response = self.send_with(value, key.as_ref()).await?;
        let is_refused =
            matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if let (true, Some((secret, used))) = (is_refused, &secret) {
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
                    return Err(HandlerError::retry_after(wait, message));
                }
            }
        }
        told_apart(response, context.now()).await
    }

    async fn send_with(
        &self,
        secret: Option<(&Secret, &Reading)>,
        key: Option<&(&HeaderName, EffectKey)>,
    ) -> Result<Response, HandlerError> {
        let Self { effect, context, url, body } = self;
        let mut headers = HeaderMap::new();
        let (client, url) = match context.outside() {
            None => (guard::client_for(url, &effect.allow_hosts)?, url.clone()),
            Some(receiver) => {
                let id = HeaderValue::from_str(context.id().as_str());
                headers.insert(DEV_RECORD_HEADER, id.map_err(HandlerError::terminal)?);
                if let Some((header, _)) = &key {
                    headers.insert(DEV_KEY_HEADER, HeaderValue::from((*header).clone()));
                }
                guard::client_instead(url.clone(), receiver)?
            }
        };
        if let Some((header, key)) = key {
            let key = HeaderValue::from_str(key.as_str()).map_err(HandlerError::terminal)?;
            headers.insert((*header).clone(), key);
        }
        if let Some((secret, read)) = secret {
            headers.insert(secret.header().clone(), read.value());
        }
        if let Some(form) = effect.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
        }
        let timeout = effect.timeout.min(context.stop().remaining(context.now()));
        let mut request =
            client.request(effect.method.clone(), url.clone()).headers(headers).timeout(timeout);
        if let Some(body) = body {
            request = request.body(body.clone());
        }
        request.send().await.map_err(guard::failed)
    }
}

async fn told_apart(response: Response, now: Timestamp) -> Result<Answer, HandlerError> {
    let status = response.status();
    if status.is_success() {
        // The effect has happened: an answer that breaks off is still done.
        return Ok(Answer { status: status.as_u16(), body: text(response).await });
    }
    let message = format!("the answer was {status}");
    if !is_worth_trying_again(status) {
        return Err(HandlerError::terminal(message));
    }
    Err(match retry_after(response.headers(), now) {
        Some(wait) => HandlerError::retry_after(wait, message),
        None => HandlerError::retryable(message),
    })
}

fn is_worth_trying_again(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 425 | 429) || status.is_server_error()
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

    #[test]
    fn statuses_are_told_apart() {
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 599] {
            assert!(is_worth_trying_again(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [301, 304, 307, 400, 401, 402, 403, 404, 422] {
            assert!(!is_worth_trying_again(StatusCode::from_u16(status).unwrap()), "{status}");
        }
    }
}
