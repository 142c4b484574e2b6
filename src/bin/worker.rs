//! The Lambda bootstrap: the jobs of the jobs file, behind an SQS queue. Outside Lambda it polls.

use onlyonce::BoxError;
use onlyonce::config::Settings;
use onlyonce::handler::Router;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    onlyonce::telemetry::init();
    let started = start().await;
    if let Err(error) = &started {
        tracing::error!(%error, "the worker cannot start");
    }
    started
}

async fn start() -> Result<(), BoxError> {
    let jobs = Router::from_jobs_file(Settings::from_env()?.jobs)?;
    onlyonce::serve(jobs).await
}
