//! What stands for a request to AWS when things are only tried out: a request to the local
//! receiver, which counts it.

use std::net::SocketAddr;

use reqwest::header::CONTENT_TYPE;
use url::Url;

use super::{Guarantee, KEY};
use crate::context::Context;
use crate::effect::http::{DEV_KEY_HEADER, DEV_RECORD_HEADER, guard};
use crate::error::HandlerError;
use crate::protocol::EffectKey;

/// Sends what would go to `target` to the receiver, as `POST /service/target`.
pub(super) async fn rehearsed(
    context: &Context,
    receiver: SocketAddr,
    (service, target): (&str, &str),
    guarantee: Guarantee,
    key: &EffectKey,
    body: String,
) -> Result<(), HandlerError> {
    let mut url = Url::parse("http://localhost/").map_err(HandlerError::terminal)?;
    if let Ok(mut path) = url.path_segments_mut() {
        path.clear().extend([service, target]);
    }
    let (client, url) = guard::client_instead(url, receiver)?;
    let mut request = client
        .post(url)
        .header(DEV_RECORD_HEADER, context.id().as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(KEY, key.as_str())
        .timeout(context.stop().remaining(context.now()));
    if guarantee.is_keyed() {
        request = request.header(DEV_KEY_HEADER, KEY);
    }
    let answer = request.body(body).send().await?;
    answer.error_for_status()?;
    Ok(())
}
