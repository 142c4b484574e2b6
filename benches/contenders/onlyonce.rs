//! The contender of this crate: its front, service and store as shipped, with a job that does
//! nothing, so that what is measured is what the crate itself costs.

use std::process::ExitCode;

use onlyonce::{Context, HandlerError, Router};

#[derive(serde::Deserialize)]
struct Order {
    amount: u64,
}

async fn charge(order: Order, _: Context) -> Result<u64, HandlerError> {
    Ok(order.amount)
}

#[tokio::main]
async fn main() -> ExitCode {
    match onlyonce::serve(Router::new().job("charge", charge)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
