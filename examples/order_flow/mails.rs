//! A mail API that honours `Idempotency-Key`, and is no better than others: it breaks down, is slow,
//! and sends mails without saying so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, routing::post};
use onlyonce::BoxError;
use onlyonce::runtime::{Clock, SystemClock, Task, spawn};
use tokio::sync::watch;

use crate::Order;

/// What it has counted.
#[derive(Clone, Default)]
pub struct Ledger {
    /// A mail for each key: the order that it is of.
    pub mails: BTreeMap<String, String>,
    pub requests: usize,
    /// Failed before anything was done.
    pub failed: usize,
    /// Sent, and the answer did not say so.
    pub unheard: usize,
    /// Sent, and whoever asked was gone before the answer.
    pub hung_up: usize,
    /// Requests without a key, or with another mail than their key stands for.
    pub refused: usize,
}

impl Ledger {
    /// How many mails each order has had.
    pub fn per_order(&self) -> BTreeMap<&str, usize> {
        let mut mails = BTreeMap::new();
        for order in self.mails.values() {
            *mails.entry(order.as_str()).or_default() += 1;
        }
        mails
    }
}

pub struct Mails {
    pub address: SocketAddr,
    books: Arc<Books>,
    _serving: Task<()>,
}

struct Books {
    ledger: Mutex<Ledger>,
    rng: Mutex<fastrand::Rng>,
    /// How many orders have had a mail.
    reached: watch::Sender<usize>,
}

impl Mails {
    pub async fn open(rng: fastrand::Rng) -> Result<Self, BoxError> {
        let (ledger, reached) = (Mutex::default(), watch::Sender::new(0));
        let books = Arc::new(Books { ledger, rng: Mutex::new(rng), reached });
        let routes = Router::new().route("/mails", post(mail)).with_state(books.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Self { address, books, _serving: serving })
    }

    pub fn ledger(&self) -> Ledger {
        self.books.count(|ledger| ledger.clone())
    }

    /// Returns once so many orders have had a mail.
    pub async fn reached(&self, orders: usize) {
        // It fails only when the sender is gone, which is a part of this.
        let _ = self.books.reached.subscribe().wait_for(|reached| *reached >= orders).await;
    }
}

async fn mail(
    State(books): State<Arc<Books>>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> StatusCode {
    let (mood, pause) = {
        let mut rng = books.rng.lock().unwrap_or_else(PoisonError::into_inner);
        (rng.u32(..100), Duration::from_millis(rng.u64(50..700)))
    };
    books.count(|ledger| ledger.requests += 1);
    if mood < 10 {
        books.count(|ledger| ledger.failed += 1);
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        books.count(|ledger| ledger.refused += 1);
        return StatusCode::BAD_REQUEST;
    };
    if !books.send(key, order.id) {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    match mood {
        ..20 => {
            books.count(|ledger| ledger.unheard += 1);
            StatusCode::GATEWAY_TIMEOUT
        }
        20..45 => {
            let waiting = Waiting(&books);
            SystemClock.sleep_until(SystemClock.now() + pause).await;
            std::mem::forget(waiting);
            StatusCode::OK
        }
        _ => StatusCode::OK,
    }
}

impl Books {
    /// Sends a mail, unless one has gone under this key. Answers false if that was another one.
    fn send(&self, key: &str, order: String) -> bool {
        let orders = self.count(|ledger| {
            if ledger.mails.entry(key.to_owned()).or_insert_with(|| order.clone()) != &order {
                ledger.refused += 1;
                return None;
            }
            Some(ledger.per_order().len())
        });
        orders.is_some_and(|orders| {
            self.reached.send_replace(orders);
            true
        })
    }

    fn count<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        change(&mut self.ledger.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A request that waits for its answer; it is dropped when the other end hangs up.
struct Waiting<'a>(&'a Books);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count(|ledger| ledger.hung_up += 1);
    }
}
