//! The contender of this crate: its front, service and store on the runtime of the shipped worker, with
//! a job that does nothing, so that what is measured is what the crate itself costs.

use std::process::ExitCode;

use onlyonce::runtime::{Allocator, executor};
use onlyonce::{BoxError, Context, HandlerError, Router};

#[derive(serde::Deserialize)]
struct Order {
    amount: u64,
}

async fn charge(order: Order, _: Context) -> Result<u64, HandlerError> {
    Ok(order.amount)
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    let jobs = Router::new().job("charge", charge);
    let run = |on: tokio::runtime::Runtime| on.block_on(onlyonce::serve(jobs));
    match executor().map_err(BoxError::from).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
