//! The `http` effect's fields.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING,
};
use serde::Deserialize;

use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::config::expression;
use crate::config::jobs_file::duration;
use crate::config::secret::{self, SecretTable};
use crate::effect::http::provider::KeyRules;
use crate::effect::http::{Ask, BodyForm, Found, Guarantee, HttpEffect, Provider, UrlTemplate};
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpTable {
    provider: Option<String>,
    method: Option<String>,
    url: Option<String>,
    body: Option<String>,
    key_header: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    key_window: Option<Duration>,
    ask: Option<AskTable>,
    #[serde(default, deserialize_with = "secret::table")]
    secret: Option<SecretTable>,
    #[serde(default)]
    allow_hosts: Vec<String>,
}

/// How the provider is asked what became of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskTable {
    url: String,
    found: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    lag: Option<Duration>,
}

#[derive(Clone, Copy)]
enum Given {
    Keyed,
    Reconcile,
    AtLeastOnce,
    AtMostOnce,
}

const GIVES: [(&str, Given, &str); 4] = [
    ("keyed", Given::Keyed, "the provider remembers the key"),
    ("reconcile", Given::Reconcile, "the provider is asked"),
    ("at-least-once", Given::AtLeastOnce, "rare duplicates are acceptable"),
    ("at-most-once", Given::AtMostOnce, "in doubt a person decides"),
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: HttpTable = fields.read()?;
    let mut wrong = Wrong::default();
    let provider = wrong.keep("provider", table.provider()).unwrap_or_default();
    let keys = provider.keys();
    wrong.keep("key_window", table.window_fits(&keys, common));
    let ask = wrong.keep("ask", table.ask()).flatten();
    let given = common.guarantee(&GIVES);
    let guarantee =
        wrong.keep("guarantee", given.and_then(|given| table.guarantee(given, keys, ask)));
    let method = wrong.keep("method", table.method());
    let url = wrong.keep("url", table.url());
    let secret = table.secret.as_ref().map(|secret| secret.secret(common.env)).transpose();
    let secret = wrong.keep("secret", secret);
    let allow_hosts = table.allow_hosts.iter();
    let allow_hosts: Vec<_> =
        allow_hosts.filter_map(|host| wrong.keep("allow_hosts", host.parse())).collect();
    let body = method.as_ref().and_then(|method| wrong.keep("body", table.body(method)));
    if let (
        Some(Guarantee::Keyed { header, .. } | Guarantee::Reconcile { header: Some(header), .. }),
        Some(Some(secret)),
    ) = (&guarantee, &secret)
        && header == secret.header()
    {
        let text = format!(
            "key_header {header} is the secret's header, too, and can carry one of them only; \
             correct one"
        );
        wrong.say("key_header", text);
    }
    let (Some(guarantee), Some(method), Some(url), Some(secret), Some(body), true) =
        (guarantee, method, url, secret, body, wrong.0.is_empty())
    else {
        return Err(wrong);
    };
    let timeout = common.timeout.unwrap_or(Duration::from_secs(10));
    let window = match &guarantee {
        Guarantee::Keyed { window, ask: None, .. } => *window,
        _ => None,
    };
    let effect =
        HttpEffect { provider, method, url, body, guarantee, secret, timeout, allow_hosts };
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    let job = job.timeout(timeout.saturating_add(AROUND_THE_REQUEST)).key_window(window);
    Ok(if body == Some(BodyForm::Raw) { job.raw() } else { job })
}

impl HttpTable {
    fn provider(&self) -> Result<Provider, String> {
        match self.provider.as_deref() {
            None => Ok(Provider::Standard),
            Some("stripe") => Ok(Provider::Stripe),
            Some(other) => Err(format!(
                "provider {other:?} is not known; write \"stripe\", or leave it out for one that \
                 does as HTTP says"
            )),
        }
    }

    fn window_fits(&self, keys: &KeyRules, common: &Common<'_>) -> Result<(), String> {
        if let (Some(window), Some(known)) = (self.key_window, keys.window)
            && window > known
        {
            return Err(format!(
                "key_window {} is longer than this provider remembers a key, {}; make it shorter, \
                 or leave it out",
                humantime::format_duration(window),
                humantime::format_duration(known)
            ));
        }
        common.outlives(self.key_window.or(keys.window))
    }

    fn ask(&self) -> Result<Option<Ask>, String> {
        let Some(table) = &self.ask else {
            return Ok(None);
        };
        let url = UrlTemplate::new(&table.url).map_err(|error| format!("ask: {error}"))?;
        let found = match &table.found {
            None => None,
            Some(text) => {
                let found = expression::compile(text)
                    .map_err(|error| format!("ask: found {text:?}: {error}"))?;
                Some(Arc::new(found) as Found)
            }
        };
        Ok(Some(Ask { url, found, lag: table.lag.unwrap_or(Duration::from_secs(60)) }))
    }

    fn guarantee(
        &self,
        given: Given,
        keys: KeyRules,
        ask: Option<Ask>,
    ) -> Result<Guarantee, String> {
        let named =
            self.key_header.as_deref().map(|name| header("key_header", name)).transpose()?;
        let unfit = |fields: &str| {
            Err(format!("{fields}; change the guarantee, or remove what does not go with it"))
        };
        match given {
            Given::Keyed => {
                let (header, window) =
                    (named.unwrap_or(keys.header), self.key_window.or(keys.window));
                Ok(Guarantee::Keyed { header, window, ask })
            }
            Given::Reconcile if self.key_window.is_some() => {
                unfit("key_window goes with guarantee = \"keyed\"")
            }
            Given::Reconcile => match ask {
                Some(ask) => Ok(Guarantee::Reconcile { header: named, ask }),
                None => {
                    Err("guarantee = \"reconcile\" needs to know how the provider is asked; add \
                             ask = { url = \"https://..{effect_key}\" }"
                        .to_owned())
                }
            },
            _ if named.is_some() || self.key_window.is_some() || ask.is_some() => unfit(
                "key_header, key_window and ask go with guarantee = \"keyed\" or \"reconcile\"",
            ),
            Given::AtLeastOnce => Ok(Guarantee::AtLeastOnce),
            Given::AtMostOnce => Ok(Guarantee::AtMostOnce),
        }
    }

    fn method(&self) -> Result<Method, String> {
        match self.method.as_deref().unwrap_or("POST") {
            "POST" => Ok(Method::POST),
            "PUT" => Ok(Method::PUT),
            "PATCH" => Ok(Method::PATCH),
            "DELETE" => Ok(Method::DELETE),
            "GET" => Ok(Method::GET),
            other => {
                Err(format!("method {other:?} is not known; write POST, PUT, PATCH, DELETE or GET"))
            }
        }
    }

    fn url(&self) -> Result<UrlTemplate, String> {
        let url = self.url.as_deref().ok_or("no url is given; add url = \"https://...\"")?;
        UrlTemplate::new(url).map_err(|error| error.to_string())
    }

    /// `Some(None)` sends no body.
    fn body(&self, method: &Method) -> Result<Option<BodyForm>, String> {
        let takes_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
        match self.body.as_deref() {
            None if !takes_body => Ok(None),
            Some(_) if !takes_body => Err(format!("a {method} request has no body; remove body")),
            None | Some("json") => Ok(Some(BodyForm::Json)),
            Some("form") => Ok(Some(BodyForm::Form)),
            Some("raw") => Ok(Some(BodyForm::Raw)),
            Some(other) => {
                Err(format!("body {other:?} is not known; write \"json\", \"form\" or \"raw\""))
            }
        }
    }
}

/// Headers that say how a request is to be read: they are set with it.
const OF_THE_REQUEST: [HeaderName; 5] =
    [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];

/// A header of the jobs file's.
pub(in crate::config) fn header(what: &str, name: &str) -> Result<HeaderName, String> {
    let header = name.parse().map_err(|_| format!("{what} {name:?} is not a header's name"))?;
    if OF_THE_REQUEST.contains(&header) {
        return Err(format!("{what} {name:?} belongs to the request itself; name another"));
    }
    Ok(header)
}
