//! The `http` effect's fields.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING,
};
use serde::Deserialize;

use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::config::jobs_file::duration;
use crate::config::secret::{self, SecretTable};
use crate::effect::http::{BodyForm, Guarantee, HttpEffect, UrlTemplate};
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpTable {
    method: Option<String>,
    url: Option<String>,
    body: Option<String>,
    key_header: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    key_window: Option<Duration>,
    #[serde(default, deserialize_with = "secret::table")]
    secret: Option<SecretTable>,
    #[serde(default)]
    allow_hosts: Vec<String>,
}

#[derive(Clone, Copy)]
enum Given {
    Keyed,
    AtLeastOnce,
}

const GIVES: [(&str, Given, &str); 2] = [
    ("keyed", Given::Keyed, "the provider remembers the key"),
    ("at-least-once", Given::AtLeastOnce, "rare duplicates are acceptable"),
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: HttpTable = fields.read()?;
    let mut wrong = Wrong::default();
    wrong.keep("key_window", common.outlives(table.key_window));
    let guarantee = common.guarantee(&GIVES).and_then(|given| table.guarantee(given));
    let guarantee = wrong.keep("guarantee", guarantee);
    let method = wrong.keep("method", table.method());
    let url = wrong.keep("url", table.url());
    let secret = table.secret.as_ref().map(|secret| secret.secret(common.env)).transpose();
    let secret = wrong.keep("secret", secret);
    let allow_hosts = table.allow_hosts.iter();
    let allow_hosts: Vec<_> =
        allow_hosts.filter_map(|host| wrong.keep("allow_hosts", host.parse())).collect();
    let body = method.as_ref().and_then(|method| wrong.keep("body", table.body(method)));
    if let (Some(Guarantee::Keyed { header, .. }), Some(Some(secret))) = (&guarantee, &secret)
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
    let effect = HttpEffect { method, url, body, guarantee, secret, timeout, allow_hosts };
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    let job = job.timeout(timeout.saturating_add(AROUND_THE_REQUEST));
    Ok(if body == Some(BodyForm::Raw) { job.raw() } else { job })
}

impl HttpTable {
    fn guarantee(&self, given: Given) -> Result<Guarantee, String> {
        match given {
            Given::Keyed => {
                let name = self.key_header.as_deref().unwrap_or("Idempotency-Key");
                let header = header("key_header", name)?;
                Ok(Guarantee::Keyed { header, window: self.key_window })
            }
            Given::AtLeastOnce if self.key_header.is_some() || self.key_window.is_some() => {
                Err("key_header and key_window go with guarantee = \"keyed\"; change the \
                     guarantee, or remove them"
                    .to_owned())
            }
            Given::AtLeastOnce => Ok(Guarantee::AtLeastOnce),
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
