//! A worker's life in Lambda, from one line in `main`.

use crate::config::Settings;
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{SqsQueue, lambda};
use crate::handler::Router;
use crate::service::Worker;
use crate::{sdk, telemetry};

/// Serves these jobs with the store, namespace, concurrency and quarantine queue that the
/// environment names, until Lambda ends the process.
pub async fn run_jobs(jobs: Router) -> Result<(), BoxError> {
    start()?;
    let settings = Settings::from_env()?;
    let sdk = sdk::load().await;
    let store = settings.store.open(std::future::ready(sdk.clone())).await?;
    let worker = Worker::builder_shared(store)
        .namespace(&settings.namespace)
        .concurrency(settings.concurrency)
        .build(jobs)?;
    serve(worker, &sdk, settings).await
}

/// Serves a worker you have built yourself; the queues are those that the environment names.
pub async fn run(worker: Worker) -> Result<(), BoxError> {
    start()?;
    let settings = Settings::from_env()?;
    let sdk = sdk::load().await;
    serve(worker, &sdk, settings).await
}

async fn serve(
    worker: Worker,
    sdk: &aws_config::SdkConfig,
    settings: Settings,
) -> Result<(), BoxError> {
    let queue = SqsQueue::new(sdk).queue_url(settings.queue_url).dlq_url(settings.dlq_url);
    lambda::serve(worker, queue).await
}

fn start() -> Result<(), Error> {
    telemetry::init();
    let refuse = |detail: &str| Err(Error::new(ErrorKind::Config, "start").with_detail(detail));
    if cfg!(panic = "abort") {
        return refuse(
            "this program was built with panic = \"abort\", so that one job's panic would fail \
             its whole batch; set panic = \"unwind\" in [profile.release]",
        );
    }
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_none() {
        return refuse("AWS_LAMBDA_RUNTIME_API is not set: this runs inside AWS Lambda");
    }
    Ok(())
}
