//! A worker with jobs written in Rust, for trying failures out on a real queue:
//!
//! - `echo` answers its payload,
//! - `explode` panics,
//! - `slow` takes `{"ms": N}`.

use std::time::Duration;

use onlyonce::context::Context;
use onlyonce::error::{BoxError, HandlerError};
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::RetryPolicy;
use onlyonce::runtime::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let soon = RetryPolicy::fixed(Duration::from_secs(1), 2);
    let jobs = Router::new()
        .job("echo", echo)
        .job("slow", slow)
        .with(Job::new("explode", explode).retry(soon));
    onlyonce::serve(jobs).await
}

async fn echo(payload: Value, _: Context) -> Result<Value, HandlerError> {
    Ok(payload)
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

async fn slow(slow: Slow, _: Context) -> Result<u64, HandlerError> {
    SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(slow.ms)).await;
    Ok(slow.ms)
}

#[allow(clippy::panic, reason = "that is the point of it")]
async fn explode(_: Value, _: Context) -> Result<(), HandlerError> {
    panic!("a bug in one job")
}
