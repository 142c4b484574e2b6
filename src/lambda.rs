//! A worker you have built yourself, in Lambda.

use crate::config::Settings;
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{SqsQueue, lambda};
use crate::service::Worker;
use crate::{sdk, telemetry};

/// Serves `worker` until Lambda ends the process. The queues are those that the environment names.
pub async fn run(worker: Worker) -> Result<(), BoxError> {
    telemetry::init();
    refuse_abort()?;
    let settings = Settings::from_env()?;
    let queue =
        SqsQueue::new(&sdk::load().await).queue_url(settings.queue_url).dlq_url(settings.dlq_url);
    lambda::serve(worker, queue).await
}

/// Under `panic = "abort"` one job's panic would fail its whole batch.
pub(crate) fn refuse_abort() -> Result<(), Error> {
    if cfg!(panic = "abort") {
        return Err(Error::new(ErrorKind::Config, "start").with_detail(
            "this program was built with panic = \"abort\", so that one job's panic would fail \
             its whole batch; set panic = \"unwind\" in [profile.release]",
        ));
    }
    Ok(())
}
