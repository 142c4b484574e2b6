//! An HTTP endpoint that accepts orders: `ONLYONCE_QUEUE_URL=.. cargo run --example accept`.
//!
//! ```sh
//! curl -i localhost:3000/orders -H 'content-type: application/json' -H 'x-customer: ada' \
//!     -H 'idempotency-key: click-1' -d '{"number": "42", "sku": "cup", "quantity": 1}'
//! ```
//!
//! The `key` of its answer is the digest that `onlyonce inspect` takes.
//!
//! The key is made here and not in the worker. Here the order is one thing: the customer's one
//! click, however often its request arrives. Its client repeats the request when the answer is
//! lost, this endpoint repeats the message when SQS's answer is lost, and SQS delivers it again;
//! all of these carry the key that was made first, so the worker runs one order. A key made later
//! would be made once for each copy, and each copy would be an order.
//!
//! The key is the client's `Idempotency-Key`, which it keeps over its retries, bound to the customer:
//! nobody meets another customer's order. A client that sends none is told apart by the number of
//! its order. `x-customer` stands for your authentication, and belongs behind a load balancer: axum
//! by itself waits for a connection that sends no headers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use onlyonce::producer::{Command, Producer, TraceParent};
use onlyonce::{BoxError, IdempotencyKey, sdk};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// For a whole request, its slow body included. Longer than the producer tries.
const REQUEST: Duration = Duration::from_secs(8);
const AT_ONCE: usize = 256;
const REMEMBERED: usize = 10_000;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Order {
    number: String,
    sku: String,
    quantity: u32,
}

struct Shop {
    producer: Producer,
    seen: Mutex<Seen>,
    room: Semaphore,
}

/// The latest keys and what came under them, to tell a client at once that it has mixed up its
/// orders. The worker finds out in any case: it never runs a second payload under a key.
#[derive(Default)]
struct Seen {
    orders: HashMap<String, String>,
    oldest_first: VecDeque<String>,
}

impl Seen {
    fn is_other(&mut self, key: &str, order: &str) -> bool {
        if let Some(seen) = self.orders.get(key) {
            return seen != order;
        }
        if self.oldest_first.len() == REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.orders.remove(&oldest);
        }
        self.oldest_first.push_back(key.to_owned());
        self.orders.insert(key.to_owned(), order.to_owned());
        false
    }
}

async fn accept(
    State(shop): State<Arc<Shop>>,
    headers: HeaderMap,
    order: Result<Json<Order>, JsonRejection>,
) -> Response {
    let order = match order {
        Ok(Json(order)) => order,
        Err(fault) if fault.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refuse(fault.status(), "an order has at most 64 KB");
        }
        Err(_) => {
            let form = "send JSON: {\"number\": text, \"sku\": text, \"quantity\": number}";
            return refuse(StatusCode::BAD_REQUEST, form);
        }
    };
    let key = match key(&headers, &order) {
        Ok(key) => key,
        Err(fault) => return refuse(StatusCode::BAD_REQUEST, fault),
    };
    let Ok(mut command) = Command::new("order.place", key.clone(), &order) else {
        return refuse(StatusCode::BAD_REQUEST, "this order cannot be written as JSON");
    };
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A broken trace is no reason to refuse an order.
    if let Some(Ok(trace)) = text("traceparent").map(TraceParent::new) {
        command = command.traceparent(trace);
    }
    let written = json!(order).to_string();
    let seen =
        shop.seen.lock().unwrap_or_else(PoisonError::into_inner).is_other(key.as_str(), &written);
    if seen {
        return refuse(StatusCode::CONFLICT, "another order came under this Idempotency-Key");
    }
    // Whoever hangs up now may have ordered: the same request again is the same order.
    match shop.producer.send(command).await {
        Ok(sent) => {
            let key = sent.id.map(|id| id.to_string());
            (StatusCode::ACCEPTED, Json(json!({ "key": key }))).into_response()
        }
        Err(error) => {
            eprintln!("{error}");
            let again = "this may not have arrived; send the same request again, it is safe";
            refuse(StatusCode::SERVICE_UNAVAILABLE, again)
        }
    }
}

/// The operation's name, the same for each repetition of this request.
fn key(headers: &HeaderMap, order: &Order) -> Result<IdempotencyKey, &'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_id = |id: &&str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        (1..=64).contains(&id.len()) && id.chars().all(fits)
    };
    let customer = text("x-customer").filter(is_id).ok_or("x-customer names nobody")?;
    let number = Some(order.number.as_str())
        .filter(is_id)
        .ok_or("an order's number is 1 to 64 letters and digits")?;
    let key = match text("idempotency-key") {
        Some(given) if (1..=255).contains(&given.len()) => {
            format!("customer:{customer}:request:{given}")
        }
        Some(_) => return Err("an Idempotency-Key has 1 to 255 ASCII characters"),
        None => format!("customer:{customer}:order:{number}:place"),
    };
    IdempotencyKey::new(key).map_err(|_| "this is no key")
}

fn refuse(status: StatusCode, why: &str) -> Response {
    let body = Json(json!({ "error": why }));
    match status {
        StatusCode::SERVICE_UNAVAILABLE => (status, [(RETRY_AFTER, "1")], body).into_response(),
        _ => (status, body).into_response(),
    }
}

/// Takes no more than it has room for, and no request longer than it may last.
async fn bounded(State(shop): State<Arc<Shop>>, request: Request, next: Next) -> Response {
    let busy = || refuse(StatusCode::SERVICE_UNAVAILABLE, "busy; send the same request again");
    let Ok(_room) = shop.room.try_acquire() else { return busy() };
    timeout(REQUEST, next.run(request)).await.unwrap_or_else(|_| busy())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    onlyonce::telemetry::init();
    let url = std::env::var("ONLYONCE_QUEUE_URL").map_err(|_| "set ONLYONCE_QUEUE_URL")?;
    let producer = Producer::new(&sdk::load().await, url);
    let producer = producer.limit(Duration::from_secs(5));
    let shop = Arc::new(Shop { producer, seen: Mutex::default(), room: Semaphore::new(AT_ONCE) });
    let routes = Router::new()
        .route("/orders", post(accept))
        .layer(DefaultBodyLimit::max(64 * 1024))
        .layer(middleware::from_fn_with_state(shop.clone(), bounded))
        .with_state(shop);
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("listening on {}", listener.local_addr()?);
    let (told, stopping) = oneshot::channel();
    let stop = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
        let _ = told.send(());
    };
    // What is under way is answered; a connection that says nothing more is not waited for.
    let patience = async {
        let _ = stopping.await;
        let _ = timeout(REQUEST, std::future::pending::<()>()).await;
    };
    tokio::select! {
        served = async { axum::serve(listener, routes).with_graceful_shutdown(stop).await } => served?,
        () = patience => {}
    }
    println!("stopped");
    Ok(())
}
