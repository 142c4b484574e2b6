//! What stands for the outside world when things are only tried out: the local receiver of `dev`,
//! which counts what it gets. Headers tell it what each request belongs to.

use std::net::SocketAddr;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use url::Url;

use super::http::guard;
use crate::context::Context;
use crate::error::HandlerError;

/// The record a request belongs to.
pub(crate) const RECORD: &str = "onlyonce-dev-record";
/// What may happen to it after a crash, as the jobs file says it.
pub(crate) const GUARANTEE: &str = "onlyonce-dev-guarantee";
/// The header that carries its key, where the other end is to know it by one.
pub(crate) const KEY_HEADER: &str = "onlyonce-dev-key-header";
/// It does nothing, and asks whether another one was there.
pub(crate) const PROBE: &str = "onlyonce-dev-probe";

/// What every request to the receiver says of itself.
pub(super) fn headers(
    context: &Context,
    guarantee: &'static str,
) -> Result<HeaderMap, HandlerError> {
    let id = HeaderValue::from_str(context.id().as_str()).map_err(HandlerError::terminal)?;
    let mut headers = HeaderMap::new();
    headers.insert(RECORD, id);
    headers.insert(GUARANTEE, HeaderValue::from_static(guarantee));
    Ok(headers)
}

/// Sends what would go to `target` to the receiver instead, as `POST /service/target`.
#[cfg_attr(
    not(any(feature = "email", feature = "aws-effects")),
    allow(dead_code, reason = "requests of the http effect go there by themselves")
)]
pub(super) async fn rehearsed(
    context: &Context,
    receiver: SocketAddr,
    (service, target): (&str, &str),
    headers: HeaderMap,
    content_type: &'static str,
    body: Vec<u8>,
) -> Result<(), HandlerError> {
    let mut url = Url::parse("http://localhost/").map_err(HandlerError::terminal)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().extend([service, target]);
    }
    let (client, url) = guard::client_instead(url, receiver)?;
    let time_left = context.stop().remaining(context.now());
    let request = client.post(url).headers(headers).header(CONTENT_TYPE, content_type);
    request.timeout(time_left).body(body).send().await?.error_for_status()?;
    Ok(())
}
