//! The outside world on this machine: counts every request it gets, and says yes; asked what became
//! of one, it says whether it was there.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::ledger::Ledger;
use crate::effect::rehearsal::{GUARANTEE, KEY_HEADER, PROBE, RECORD};
use crate::error::BoxError;
use crate::protocol::RecordId;
use crate::runtime::{Task, spawn};

/// A local HTTP server that stands for every host the jobs call.
pub struct Receiver {
    address: SocketAddr,
    ledger: Arc<Mutex<Option<Arc<Ledger>>>>,
    _serving: Task<()>,
}

impl Receiver {
    /// Listens on a free port of this machine.
    pub async fn start() -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let ledger: Arc<Mutex<Option<Arc<Ledger>>>> = Arc::default();
        let reports_to = ledger.clone();
        let serving = spawn(async move {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let reports_to = reports_to.clone();
                connections.retain(|task: &Task<()>| !task.is_finished());
                connections.push(spawn(async move {
                    let respond = service_fn(move |request| {
                        let ledger = current(&reports_to);
                        async move { Ok::<_, Infallible>(respond(request, ledger)) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // A client that is killed breaks its connection off: nothing to be done.
                    let _ = http.serve_connection(TokioIo::new(stream), respond).await;
                }));
            }
        });
        Ok(Self { address, ledger, _serving: serving })
    }

    pub(super) fn report_to(&self, ledger: Arc<Ledger>) {
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = Some(ledger);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn current(ledger: &Mutex<Option<Arc<Ledger>>>) -> Option<Arc<Ledger>> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Counts the request when its head is there: from then on it may have had its effect.
fn respond(request: Request<Incoming>, ledger: Option<Arc<Ledger>>) -> Response<FullBody> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let id = header(RECORD).and_then(RecordId::from_hex);
    let mut status = StatusCode::OK;
    if let (Some(id), Some(ledger)) = (id, ledger) {
        if header(PROBE).is_none() {
            let (guarantee, key) = (header(GUARANTEE), header(KEY_HEADER).and_then(header));
            let what = format!("{} {}", request.method(), request.uri().path());
            ledger.requested(&id, guarantee, key, &what);
        } else if !ledger.asked(&id) {
            status = StatusCode::NOT_FOUND;
        }
    }
    let mut response = Response::new(FullBody::from(Bytes::from_static(b"{\"ok\":true}")));
    *response.status_mut() = status;
    response
}

type FullBody = http_body_util::Full<Bytes>;
