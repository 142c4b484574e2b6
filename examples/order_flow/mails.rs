//! A mail API that honours `Idempotency-Key`, and is no better than others: it breaks down, is slow,
//! and sends mails without saying so.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Requests that it has failed before it did anything.
    pub failed: usize,
    /// Requests whose answer did not say that the mail had gone, or came too late.
    pub unheard: usize,
    /// Requests without a key, or with another mail than the one that its key stands for.
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
    ledger: Mutex<(Ledger, fastrand::Rng)>,
    /// How many orders have had a mail.
    reached: watch::Sender<usize>,
}

impl Mails {
    pub async fn open(rng: fastrand::Rng) -> Result<Self, BoxError> {
        let ledger = Mutex::new((Ledger::default(), rng));
        let books = Arc::new(Books { ledger, reached: watch::Sender::new(0) });
        let routes = Router::new().route("/mails", post(mail)).with_state(books.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = spawn(async move { drop(axum::serve(listener, routes).await) });
        Ok(Self { address, books, _serving: serving })
    }

    pub fn ledger(&self) -> Ledger {
        self.books.ledger.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
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
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (answer, after) = books.received(key, order.id);
    SystemClock.sleep_until(SystemClock.now() + after).await;
    answer
}

impl Books {
    /// The answer, and how long it takes.
    fn received(&self, key: Option<&str>, order: String) -> (StatusCode, Duration) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let (ledger, rng) = &mut *ledger;
        ledger.requests += 1;
        let Some(key) = key else {
            ledger.refused += 1;
            return (StatusCode::BAD_REQUEST, Duration::ZERO);
        };
        let mood = rng.u32(..100);
        if mood < 10 {
            ledger.failed += 1;
            return (StatusCode::INTERNAL_SERVER_ERROR, Duration::ZERO);
        }
        if ledger.mails.entry(key.to_owned()).or_insert_with(|| order.clone()) != &order {
            ledger.refused += 1;
            return (StatusCode::UNPROCESSABLE_ENTITY, Duration::ZERO);
        }
        // From here on the mail has gone, now or before.
        let orders = ledger.mails.values().collect::<BTreeSet<_>>().len();
        self.reached.send_replace(orders);
        if mood < 25 {
            ledger.unheard += 1;
        }
        match mood {
            ..20 => (StatusCode::GATEWAY_TIMEOUT, Duration::ZERO),
            // Longer than anybody waits here.
            20..25 => (StatusCode::OK, Duration::from_millis(1_500)),
            25..50 => (StatusCode::OK, Duration::from_millis(rng.u64(50..700))),
            _ => (StatusCode::OK, Duration::ZERO),
        }
    }
}
