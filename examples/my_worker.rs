//! A worker of one's own: one job in Rust, three lives from one line.
//!
//! `cargo run --example my_worker -- dev examples/mine.jsonl --duplicates 2`

use onlyonce::{Context, HandlerError, Router};

#[derive(serde::Deserialize)]
struct Order {
    cents: u64,
}

async fn settle(order: Order, cx: Context) -> Result<String, HandlerError> {
    if order.cents == 0 {
        return Err(HandlerError::terminal("nothing to charge"));
    }
    cx.effect("charge").keyed(async |key| gateway::charge(order.cents, key).await).await
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    onlyonce::main(Router::new().job("order.settle", settle)).await
}

/// Stands for a payment provider's client: it shows which key it was called with.
mod gateway {
    use onlyonce::EffectKey;

    pub async fn charge(cents: u64, key: EffectKey) -> Result<String, std::io::Error> {
        println!("charge {cents} cents under {key}");
        Ok(format!("ch_{key}"))
    }
}
