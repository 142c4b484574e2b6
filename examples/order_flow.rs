//! From an order to its mail, once, whoever dies: `cargo run --example order_flow`.
//!
//! ```text
//!   Producer ──► queue ──► worker: order.place ──► one commit: the order's row, and its event
//!                  ▲                                                           │
//!                  ├──────── message, its key the event's id ◄──────── relay: order.placed
//!                  │
//!                  └─────► worker: mail.receipt ──► the mail API, under a key that it knows again
//! ```
//!
//! What you copy is this file and `order_flow/jobs.toml`: an order and its event are one commit, the
//! relay sends the event on under its id, and the mail is sent under a key of that id. Nothing in
//! here remembers what was done before, or tries again: that is what the records are for.
//!
//! What runs it is in the folder `order_flow`: a Postgres of its own, queues, a mail API that breaks
//! down, and somebody who kills the worker and the relay again and again (`run.rs`). It takes a
//! minute, ends with what it has counted, and its exit status says whether that is right.

#[path = "order_flow/mails.rs"]
mod mails;
#[path = "order_flow/processes.rs"]
mod processes;
#[path = "order_flow/queues.rs"]
mod queues;
#[path = "order_flow/run.rs"]
mod run;
#[path = "../tests/servers/postgres.rs"]
#[allow(dead_code, clippy::unwrap_used, clippy::expect_used, reason = "it is the tests' server")]
mod server;

use std::process::ExitCode;

use onlyonce::config::Settings;
use onlyonce::store::{Columns, RowWrite};
use onlyonce::{BoxError, Context, HandlerError, Job, Router};
use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
struct Order {
    id: String,
    customer: String,
    cents: i64,
}

/// The order's row and its event commit together with the job's completion, or not at all.
async fn place(order: Order, cx: Context) -> Result<(), HandlerError> {
    let row = RowWrite::PutIfAbsent {
        table: "orders".to_owned(),
        key: Columns::from([("id".to_owned(), order.id.as_str().into())]),
        values: Columns::from([
            ("customer".to_owned(), order.customer.as_str().into()),
            ("cents".to_owned(), order.cents.into()),
        ]),
    };
    cx.stage(row).await?;
    // A customer's events are sent on in the order of the orders.
    cx.outbox_for(&order.customer, "order.placed", &order).await?;
    Ok(())
}

/// The same jobs for the worker and for the relay. Staging is all that `order.place` does, so it is
/// fused: one transaction, and no claim that a crash would leave behind.
async fn serve() -> Result<ExitCode, BoxError> {
    let jobs = Router::from_jobs_file(Settings::from_env()?.jobs)?;
    let jobs = jobs.with(Job::new("order.place", place).fused());
    onlyonce::serve(jobs).await?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match std::env::args().nth(1).as_deref() {
        // One program: what it serves, the environment says (ONLYONCE_QUEUE_URL, ONLYONCE_RELAY).
        Some("worker" | "relay") => serve().await,
        _ => run::run().await,
    };
    ended.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
