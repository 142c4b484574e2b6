//! The producer of `src/docs/producers.md`: `ONLYONCE_QUEUE_URL=.. cargo run --example enqueue`.

use onlyonce::producer::{Command, Producer};
use onlyonce::{BoxError, IdempotencyKey, sdk};

#[derive(serde::Serialize)]
struct Invoice {
    invoice: u32,
    amount: u32,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("ONLYONCE_QUEUE_URL").map_err(|_| "set ONLYONCE_QUEUE_URL")?;
    let producer = Producer::new(&sdk::load().await, url);
    let key = IdempotencyKey::new("invoice:42:finalize")?;
    let invoice = Invoice { invoice: 42, amount: 4200 };
    let sent = producer.send(Command::new("invoice.finalize", key, &invoice)?).await?;
    println!("{}", sent.message_id);
    Ok(())
}
