//! What is known of a provider: which keys it takes, for how long it remembers them, and what its
//! answers say of the request.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::Value;

/// A provider of effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// One that does as HTTP and the IETF's `Idempotency-Key` draft say: 409 while a request with
    /// the same key runs, 400 or 422 for a key that came with another request.
    #[default]
    Standard,
    /// Stripe, API v1. The first answer under a key is saved once the request has begun to run, a
    /// failure of Stripe's own included, and is replayed with `Idempotent-Replayed: true`.
    Stripe,
}

/// The keys that a provider takes.
#[derive(Clone, Debug)]
pub struct KeyRules {
    /// The header that carries one.
    pub header: HeaderName,
    /// How many characters one may have.
    pub longest: usize,
    /// Which characters those are.
    pub takes: fn(char) -> bool,
    /// For how long it is remembered, if that is known.
    pub window: Option<Duration>,
}

/// What an answer says of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It was done.
    Done,
    /// It is worth trying again, and may have been done.
    Later,
    /// It is worth trying again, and was not done.
    NotYet,
    /// Trying again cannot help. Under this key nothing was done.
    Rejected,
    /// Trying again cannot help. The request was turned away before anybody looked at its key.
    TurnedAway,
    /// The key may have come with another request before.
    Mismatch,
    /// Trying again cannot help, and it may have been done.
    Final,
    /// It may have been done, and its key can no longer tell: only the provider can.
    Unclear,
}

impl Provider {
    /// The keys it takes.
    pub fn keys(self) -> KeyRules {
        let header = HeaderName::from_static("idempotency-key");
        match self {
            Self::Standard => KeyRules {
                header,
                longest: usize::MAX,
                takes: |character| character.is_ascii_graphic(),
                window: None,
            },
            Self::Stripe => KeyRules {
                header,
                longest: 255,
                takes: |character| character.is_ascii_graphic(),
                window: Some(Duration::from_secs(24 * 60 * 60)),
            },
        }
    }

    /// Why, in the provider's own codes. Never a text for people: it may quote the payload.
    pub fn reason(self, body: &str) -> Option<String> {
        match self {
            Self::Standard => None,
            Self::Stripe => words(body, &["/error/type", "/error/code", "/error/decline_code"]),
        }
    }

    /// What an answer means; `body` is there if it is text of a reasonable size.
    pub fn meaning(self, status: StatusCode, headers: &HeaderMap, body: Option<&str>) -> Meaning {
        match self {
            Self::Standard => standard(status),
            Self::Stripe => stripe(status, headers, body),
        }
    }
}

/// The strings at these places of a JSON text, as far as they are words of a program.
fn words(body: &str, places: &[&str]) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let is_word = |word: &&str| {
        word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    };
    let found = places.iter().filter_map(|place| body.pointer(place)?.as_str()).filter(is_word);
    let found: Vec<_> = found.collect();
    (!found.is_empty()).then(|| found.join(", "))
}

fn standard(status: StatusCode) -> Meaning {
    match status.as_u16() {
        200..300 => Meaning::Done,
        // Too early, too many: refused before it was begun.
        425 | 429 => Meaning::NotYet,
        408 | 409 | 500.. => Meaning::Later,
        402 => Meaning::Rejected,
        400 | 422 => Meaning::Mismatch,
        401..500 => Meaning::TurnedAway,
        // A redirect may follow what was done.
        _ => Meaning::Final,
    }
}

fn stripe(status: StatusCode, headers: &HeaderMap, body: Option<&str>) -> Meaning {
    let is_replayed = headers.get("idempotent-replayed").is_some_and(|value| value == "true");
    let body = body.and_then(|body| serde_json::from_str::<Value>(body).ok());
    let kind = body.as_ref().and_then(|body| body.pointer("/error/type")?.as_str());
    match (status.as_u16(), kind) {
        // Another request with the key is in flight, or there are too many.
        (409 | 429, _) => standard(status),
        (_, Some("idempotency_error")) => Meaning::Unclear,
        // It would be replayed as long as the key is known.
        (500.., _) if is_replayed => Meaning::Unclear,
        (401 | 403, _) => Meaning::TurnedAway,
        // Declined, or not valid: what was done under this key would have been replayed instead.
        (400..500, Some("card_error" | "invalid_request_error")) => Meaning::Rejected,
        (400 | 422, _) => Meaning::TurnedAway,
        _ => standard(status),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;
    use crate::protocol::{EffectKey, IdempotencyKey, RecordId};

    const PROVIDERS: [Provider; 2] = [Provider::Standard, Provider::Stripe];

    fn of(provider: Provider, status: u16, body: Option<&str>) -> Meaning {
        provider.meaning(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body)
    }

    #[test]
    fn an_answers_status_is_told_apart() {
        for provider in PROVIDERS {
            let meaning = |status| of(provider, status, None);
            for status in [200, 201, 204] {
                assert_eq!(meaning(status), Meaning::Done, "{status}");
            }
            for status in [408, 409, 500, 502, 503, 504, 599] {
                assert_eq!(meaning(status), Meaning::Later, "{status}");
            }
            for status in [425, 429] {
                assert_eq!(meaning(status), Meaning::NotYet, "{status}");
            }
            for status in [401, 403, 404, 405, 413, 451] {
                assert_eq!(meaning(status), Meaning::TurnedAway, "{status}");
            }
            for status in [301, 303, 307] {
                assert_eq!(meaning(status), Meaning::Final, "{status}");
            }
            assert_eq!(meaning(402), Meaning::Rejected);
        }
        assert_eq!(of(Provider::Standard, 400, None), Meaning::Mismatch);
        assert_eq!(of(Provider::Standard, 422, None), Meaning::Mismatch);
    }

    #[test]
    fn stripe_says_more_than_its_status() {
        let error = |kind: &str| format!(r#"{{"error":{{"type":"{kind}","message":"no"}}}}"#);
        let meaning = |status, kind| of(Provider::Stripe, status, Some(&error(kind)));
        assert_eq!(meaning(402, "card_error"), Meaning::Rejected);
        assert_eq!(meaning(400, "invalid_request_error"), Meaning::Rejected);
        assert_eq!(meaning(404, "invalid_request_error"), Meaning::Rejected);
        assert_eq!(meaning(401, "invalid_request_error"), Meaning::TurnedAway);
        assert_eq!(meaning(400, "idempotency_error"), Meaning::Unclear);
        // In flight under the same key, and too many.
        assert_eq!(meaning(409, "idempotency_error"), Meaning::Later);
        assert_eq!(meaning(409, "invalid_request_error"), Meaning::Later);
        assert_eq!(meaning(429, "invalid_request_error"), Meaning::NotYet);
        assert_eq!(of(Provider::Stripe, 400, Some("not json")), Meaning::TurnedAway);
    }

    #[test]
    fn a_failure_of_stripes_own_is_worth_trying_again_until_it_is_replayed() {
        let replayed = HeaderMap::from_iter([(
            HeaderName::from_static("idempotent-replayed"),
            HeaderValue::from_static("true"),
        )]);
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        let meaning = |headers: &HeaderMap| Provider::Stripe.meaning(failed, headers, None);
        assert_eq!(meaning(&HeaderMap::new()), Meaning::Later);
        assert_eq!(meaning(&replayed), Meaning::Unclear);
        let done = Provider::Stripe.meaning(StatusCode::OK, &replayed, None);
        assert_eq!(done, Meaning::Done);
    }

    #[test]
    fn every_provider_takes_the_keys_that_effects_have() {
        let id = RecordId::new("default", "job", &IdempotencyKey::new("k").unwrap());
        let key = EffectKey::new(&id, "http", 3);
        for provider in PROVIDERS {
            let rules = provider.keys();
            assert!(key.as_str().len() <= rules.longest);
            assert!(key.as_str().chars().all(rules.takes));
        }
    }
}
