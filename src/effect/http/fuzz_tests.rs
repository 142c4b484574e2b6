//! Whatever a payload fills a URL with, and whatever a provider says of waiting.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use serde_json::json;

use super::{UrlTemplate, retry_after};
use crate::fuzz::fuzz;
use crate::payload::Payload;
use crate::protocol::{MAX_RETRY_AFTER, Timestamp};

fn payload(value: &str) -> Payload {
    let all = json!({"a": value, "name": value, "n": value, "id": value});
    Payload::json(all.to_string()).unwrap()
}

/// The first line is the template, what follows is what the payload puts into it.
#[cfg_attr(test, test)]
pub(crate) fn a_payload_chooses_neither_host_nor_path() {
    fuzz("url", |input| {
        let (template, value) = input.split_once('\n').unwrap_or((input, "../?#@:\\ %2e"));
        let Ok(template) = UrlTemplate::new(template) else {
            return;
        };
        let (Ok(filled), Ok(plain)) =
            (template.fill(&payload(value), &[]), template.fill(&payload("x"), &[]))
        else {
            return;
        };
        let place = |url: &url::Url| {
            let segments = url.path_segments().map(Iterator::count);
            let login = (url.username().to_owned(), url.password().map(str::to_owned));
            let pairs = url.query().map(|query| query.matches(['&', '=']).count());
            (url.origin(), login, segments, pairs, url.fragment().is_some())
        };
        assert_eq!(place(&filled), place(&plain), "{filled} {plain}");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn a_retry_after_is_a_wait_within_bounds_or_none() {
    fuzz("retry_after", |value| {
        let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else {
            return;
        };
        let headers = HeaderMap::from_iter([(RETRY_AFTER, value)]);
        for now in [0, 784_111_767_000, u64::MAX] {
            let wait = retry_after(&headers, Timestamp::from_millis(now));
            let bounds = Duration::from_secs(1)..=MAX_RETRY_AFTER;
            assert!(wait.is_none_or(|wait| bounds.contains(&wait)), "{wait:?}");
        }
    });
}
