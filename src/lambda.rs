//! A worker you have built yourself, in Lambda.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use crate::config::Settings;
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{SqsQueue, answer, lambda};
use crate::protocol::Timestamp;
use crate::relay::{Relay, Source};
use crate::service::Worker;
use crate::{sdk, telemetry};

/// Serves `worker` until Lambda ends the process: batches of its queue, and the stream and the
/// sweeps of its store's outbox. The queues are those that the environment names.
pub async fn run(worker: Worker) -> Result<(), BoxError> {
    telemetry::init();
    refuse_abort()?;
    let settings = Settings::from_env()?;
    let queue =
        SqsQueue::new(&sdk::load().await).queue_url(settings.queue_url).dlq_url(settings.dlq_url);
    serve(worker, queue).await
}

pub(crate) async fn serve(worker: Worker, queue: SqsQueue) -> Result<(), BoxError> {
    let queue = Arc::new(queue);
    let relay = Relay::of(&worker, queue.clone());
    let (worker, queue, relay) = (&worker, queue.as_ref(), relay.as_ref());
    // Before the first question for work, time costs no message anything.
    worker.warm_up().await;
    let answer = move |event: Box<RawValue>, hard| answered(worker, queue, relay, event, hard);
    lambda::serve(answer).await
}

/// The answer to whatever this function is connected to.
async fn answered(
    worker: &Worker,
    queue: &SqsQueue,
    relay: Option<&Relay>,
    event: Box<RawValue>,
    hard: Timestamp,
) -> Result<Box<RawValue>, Error> {
    let relay = || {
        relay.ok_or_else(|| {
            Error::new(ErrorKind::Config, "relay").with_detail(
                "this store has no outbox; remove the stream or the schedule from this function, \
                 or set ONLYONCE_STORE to dynamodb://TABLE",
            )
        })
    };
    let answered = match Source::of(event.get()) {
        Source::Queue => to_raw_value(&answer(worker, queue, event.get(), hard).await?),
        Source::Stream => to_raw_value(&relay()?.answer(event.get(), hard).await?),
        Source::Schedule => to_raw_value(&relay()?.sweep(hard).await?),
    };
    answered.map_err(|error| Error::new(ErrorKind::Event, "answer").with_source(error))
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
