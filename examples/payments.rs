//! Payments next to the business rows: `cargo run --example payments` on a SQLite file, or
//! `cargo run --example payments -- postgres://USER:PASSWORD@HOST/DATABASE`.
//!
//! The table `payments` has a unique `idempotency_key`, which stays for ever, whatever becomes of the
//! records of jobs. The payment, the wallet it is taken from and the job's completion are one
//! transaction: all of it is there, or nothing. It is a short one: it begins when the handler has
//! ended, and no lock is held while a handler thinks.
//!
//! Here 10 orders come three times each, and once more under other keys, by a producer with a
//! bug: the records know nothing of that, but the table does. There is enough for 8 of them.

use std::sync::Arc;

use onlyonce::local::{FastClock, LocalQueue, Poller, QueueSettings};
use onlyonce::runtime::spawn;
use onlyonce::store::{PostgresStore, SqlStatement, SqliteStore, Store};
use onlyonce::{BoxError, Context, HandlerError, Job, Router, Worker};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    number: i64,
    cents: i64,
}

async fn pay(order: Order, cx: Context) -> Result<(), HandlerError> {
    let payment = SqlStatement {
        sql: "INSERT INTO payments (idempotency_key, cents) VALUES ($1, $2)".to_owned(),
        params: vec![format!("order:{}:pay", order.number).into(), order.cents.into()],
        expect_changes: Some(1),
    };
    cx.stage_or(payment, HandlerError::terminal("this order is paid already")).await?;
    let taken = SqlStatement {
        sql: "UPDATE wallet SET cents = cents - $1 WHERE cents >= $1".to_owned(),
        params: vec![order.cents.into()],
        expect_changes: Some(1),
    };
    cx.stage_or(taken, HandlerError::terminal("too little in the wallet")).await
}

/// The application's own tables. The SQL is the same for both databases.
const TABLES: &str = "
    CREATE TABLE payments (idempotency_key TEXT PRIMARY KEY, cents BIGINT NOT NULL);
    CREATE TABLE wallet (cents BIGINT NOT NULL);
    INSERT INTO wallet VALUES (4000)";
const PAYMENTS: &str = "SELECT count(*) FROM payments";
const WALLET: &str = "SELECT cents FROM wallet";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (payments, left): (i64, i64) = match std::env::args().nth(1) {
        Some(url) => {
            let (shop, serving) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
            let _serving = spawn(serving);
            shop.batch_execute(TABLES).await?;
            PostgresStore::create(&url).await?; // as `onlyonce setup` does
            deliver(Arc::new(PostgresStore::open_existing(&url).await?)).await?;
            let payments = shop.query_one(PAYMENTS, &[]).await?;
            (payments.get(0), shop.query_one(WALLET, &[]).await?.get(0))
        }
        None => {
            let name = format!("onlyonce-payments-{}.db", std::process::id());
            let file = std::env::temp_dir().join(name);
            let store = SqliteStore::open(&file).await?;
            let shop = rusqlite::Connection::open(&file)?;
            shop.execute_batch(TABLES)?;
            deliver(Arc::new(store)).await?;
            let payments = shop.query_row(PAYMENTS, [], |row| row.get(0))?;
            let left = shop.query_row(WALLET, [], |row| row.get(0))?;
            drop(shop);
            std::fs::remove_file(&file)?;
            (payments, left)
        }
    };
    println!("{payments} payments, {left} cents left");
    Ok(())
}

async fn deliver(store: Arc<dyn Store>) -> Result<(), BoxError> {
    let worker = Worker::builder(store).clock(Arc::new(FastClock::new(10)));
    let worker = worker.build(Router::new().with(Job::new("order.pay", pay).fused()))?;
    let queue = LocalQueue::new(QueueSettings::default(), worker.shared_clock());
    let send = |number: u32, key: String| {
        queue.send("order.pay", &key, format!(r#"{{"number":{number},"cents":500}}"#));
    };
    for number in (1..=10).chain(1..=10).chain(1..=10) {
        send(number, format!("order:{number}:pay"));
    }
    let first = Poller::default().drain(&queue, &worker).await;
    (1..=10).for_each(|number| send(number, format!("again:{number}")));
    let again = Poller::default().drain(&queue, &worker).await;
    println!("{} deliveries, then {} under other keys", first.deliveries, again.deliveries);
    Ok(())
}
