//! Taking stock exactly once: `cargo run --example reserve_stock`.
//!
//! Where the effect is a row of the store's own database, there is nothing to remember and nothing
//! to ask: the row changes in the same transaction that records the job as done, or neither does.
//! A job whose whole work is such rows is *fused*: it claims nothing, and is one transaction. Copies
//! of a message may run at the same time; the record's condition lets one of them through, and the
//! others find the job done.
//!
//! Here 20 orders of one cup each come four times, and there are 15 cups. The floor refuses what
//! would take the shelf below nothing; what that means, the job says: sold out, for good.

mod embedded;

use onlyonce::store::{Columns, RowWrite};
use onlyonce::{BoxError, Context, HandlerError, Job, Router};
use serde::Deserialize;

use embedded::Embedded;

#[derive(Deserialize)]
struct Order {
    sku: String,
    quantity: i64,
}

async fn reserve(order: Order, cx: Context) -> Result<(), HandlerError> {
    let taken = RowWrite::Add {
        table: "stock".to_owned(),
        key: Columns::from([("sku".to_owned(), order.sku.into())]),
        add: [("available".to_owned(), -order.quantity)].into(),
        floor: [("available".to_owned(), 0)].into(),
    };
    cx.stage_or(taken, HandlerError::terminal("sold out")).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let embedded = Embedded::new("reserve-stock")?;
    let shop = rusqlite::Connection::open(embedded.file())?;
    shop.execute_batch(
        "CREATE TABLE stock (sku TEXT PRIMARY KEY, available INTEGER NOT NULL) STRICT;
         INSERT INTO stock VALUES ('cup', 15);",
    )?;
    let keys: Vec<_> = (1..=20).map(|order| format!("order:{order}:reserve")).collect();
    let message = |key| ("order.reserve", key, r#"{"sku":"cup","quantity":1}"#);
    let once = keys.iter().map(|key| message(key.as_str()));
    let messages: Vec<_> = std::iter::repeat_n(once, 4).flatten().collect();

    let jobs = Router::new().with(Job::new("order.reserve", reserve).fused());
    let drained = embedded.deliver(jobs, &messages, false).await?;
    let left: i64 =
        shop.query_row("SELECT available FROM stock WHERE sku = 'cup'", [], |row| row.get(0))?;
    let reserved: i64 =
        shop.query_row("SELECT count(*) FROM onlyonce WHERE status = 'completed'", [], |row| {
            row.get(0)
        })?;
    println!(
        "{} deliveries of {} orders: {reserved} reserved, {left} cups left",
        drained.deliveries,
        keys.len()
    );
    Ok(())
}
