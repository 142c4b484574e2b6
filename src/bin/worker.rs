//! The Lambda bootstrap: the jobs of the jobs file, behind an SQS queue. Outside Lambda it polls.

use std::process::ExitCode;

use onlyonce::BoxError;
use onlyonce::config::Settings;
use onlyonce::handler::Router;
use onlyonce::runtime::{Allocator, executor};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    match executor() {
        Ok(executor) => executor.block_on(run()),
        Err(error) => {
            eprintln!("the worker cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> ExitCode {
    onlyonce::telemetry::init();
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the worker cannot start");
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), BoxError> {
    let jobs = Router::from_jobs_file(Settings::from_env()?.jobs)?;
    onlyonce::serve(jobs).await
}
