//! What a job's table says of its effect, checked and made into a job.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, TRANSFER_ENCODING,
};

use super::jobs_file::{Env, JobTable};
use crate::effect::http::{BodyForm, Guarantee, HttpEffect, UrlTemplate};
use crate::handler::Job;

/// What is wrong with one field of a job's table.
pub(super) type FieldFault = (&'static str, String);

/// What an attempt needs beside the request itself: claiming is over, settling is to come.
const AROUND_THE_REQUEST: Duration = Duration::from_secs(5);

const GUARANTEES: [&str; 5] =
    ["transactional", "keyed", "reconcile", "at-least-once", "at-most-once"];

impl JobTable {
    /// The job, or everything that is wrong with its effect.
    pub fn effect_job(&self, name: &str, env: Env<'_>) -> Result<Job, Vec<FieldFault>> {
        let mut wrong = Vec::new();
        match self.effect.as_deref() {
            Some("http") => {}
            Some(other) => {
                let text = format!("effect {other:?} is not known; this version has \"http\"");
                wrong.push(("effect", text));
            }
            None => wrong.push(("effect", "no effect is named; add effect = \"http\"".to_owned())),
        }
        let guarantee = keep("guarantee", self.guarantee(), &mut wrong);
        let method = keep("method", self.method(), &mut wrong);
        let url = keep("url", self.url(), &mut wrong);
        let secret = self.secret.as_ref().map(|secret| secret.secret(env)).transpose();
        let secret = keep("secret", secret, &mut wrong);
        let allow_hosts = self.allow_hosts.iter();
        let allow_hosts: Vec<_> =
            allow_hosts.filter_map(|host| keep("allow_hosts", host.parse(), &mut wrong)).collect();
        let body = method.as_ref().and_then(|method| keep("body", self.body(method), &mut wrong));
        if let (Some(Guarantee::Keyed { header, .. }), Some(Some(secret))) = (&guarantee, &secret)
            && header == secret.header()
        {
            let text = format!(
                "key_header {header} is the secret's header, too, and can carry one of them only; \
                 correct one"
            );
            wrong.push(("key_header", text));
        }
        let (Some(guarantee), Some(method), Some(url), Some(secret), Some(body), true) =
            (guarantee, method, url, secret, body, wrong.is_empty())
        else {
            return Err(wrong);
        };
        let timeout = self.timeout.unwrap_or(Duration::from_secs(10));
        let effect = HttpEffect { method, url, body, guarantee, secret, timeout, allow_hosts };
        let job = Job::from_calls(name, move |call| {
            let effect = effect.clone();
            async move { effect.run(call).await }
        });
        let job = job.timeout(timeout.saturating_add(AROUND_THE_REQUEST));
        Ok(if body == Some(BodyForm::Raw) { job.raw() } else { job })
    }

    fn guarantee(&self) -> Result<Guarantee, String> {
        match self.guarantee.as_deref() {
            Some("keyed") => {
                let name = self.key_header.as_deref().unwrap_or("Idempotency-Key");
                let header = header("key_header", name)?;
                Ok(Guarantee::Keyed { header, window: self.key_window })
            }
            Some("at-least-once") if self.key_header.is_some() || self.key_window.is_some() => {
                Err("key_header and key_window go with guarantee = \"keyed\"; change the \
                     guarantee, or remove them"
                    .to_owned())
            }
            Some("at-least-once") => Ok(Guarantee::AtLeastOnce),
            Some(other) if GUARANTEES.contains(&other) => Err(format!(
                "the http effect cannot give guarantee {other:?}; it gives \"keyed\" (the provider \
                 remembers the key) or \"at-least-once\""
            )),
            Some(other) => Err(format!(
                "guarantee {other:?} is not known; write \"keyed\" or \"at-least-once\""
            )),
            None => Err("no guarantee is named: say what may happen after a crash, with \
                         guarantee = \"keyed\" (the provider remembers the key) or \
                         \"at-least-once\" (rare duplicates are acceptable)"
                .to_owned()),
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
pub(super) fn header(what: &str, name: &str) -> Result<HeaderName, String> {
    let header = name.parse().map_err(|_| format!("{what} {name:?} is not a header's name"))?;
    if OF_THE_REQUEST.contains(&header) {
        return Err(format!("{what} {name:?} belongs to the request itself; name another"));
    }
    Ok(header)
}

fn keep<T>(
    field: &'static str,
    result: Result<T, String>,
    wrong: &mut Vec<FieldFault>,
) -> Option<T> {
    result.map_err(|text| wrong.push((field, text))).ok()
}
