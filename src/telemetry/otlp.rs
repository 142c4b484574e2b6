//! The HTTP client that sends traces: ours, so that there is one TLS, rustls with ring.

use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, ResponseBodyTooLarge};
use tokio::runtime::Handle;

use crate::runtime::{Ended, spawn};

/// How long one request takes at most, unless the standard variables say otherwise.
const TAKES: Duration = Duration::from_secs(10);
/// The longest answer that is read.
const MOST: usize = 64 * 1024;

/// Sends from a thread that has no runtime of its own, on that of the program.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    pub fn new() -> Result<Self, String> {
        let runtime = Handle::try_current().map_err(|error| error.to_string())?;
        // Fails only if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
        let millis = names.into_iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
        let http = reqwest::Client::builder()
            .user_agent(concat!("onlyonce/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(millis.map_or(TAKES, Duration::from_millis))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { http, runtime })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = sent(self.http.clone(), request);
        let mut task = {
            let _entered = self.runtime.enter();
            spawn(sending)
        };
        task.join().await.map_err(|ended| match ended {
            Ended::Panicked(message) => message,
            Ended::Stopped => "the program has ended".to_owned(),
        })?
    }
}

async fn sent(
    http: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let mut answer = http.execute(request.try_into()?).await?;
    let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        if body.len() + part.len() > MOST {
            return Err(ResponseBodyTooLarge::new().into());
        }
        body.extend_from_slice(&part);
    }
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}
