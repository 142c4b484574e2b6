//! A worker you have built yourself, in Lambda.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};

use crate::config::{MetricsSetting, Settings};
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{SqsQueue, answer, lambda};
use crate::protocol::Timestamp;
use crate::relay::{Relay, Source};
use crate::sdk;
use crate::service::Worker;
use crate::telemetry::{self, Emf, Teller};

/// Serves `worker` until Lambda ends the process: batches of its queue, and the stream and the
/// sweeps of its store's outbox. The queues are those that the environment names.
pub async fn run(worker: Worker) -> Result<(), BoxError> {
    telemetry::init();
    refuse_abort()?;
    let settings = Settings::from_env()?;
    let teller = teller(&settings);
    let queue =
        SqsQueue::new(&sdk::load().await).queue_url(settings.queue_url).dlq_url(settings.dlq_url);
    serve(worker, queue, teller).await
}

/// What tells of a worker what these settings ask for.
pub(crate) fn teller(settings: &Settings) -> Teller {
    Teller::new(match settings.metrics {
        MetricsSetting::Off => None,
        MetricsSetting::Emf => Some(Emf::new(&settings.service)),
    })
}

pub(crate) async fn serve(worker: Worker, queue: SqsQueue, teller: Teller) -> Result<(), BoxError> {
    let queue = Arc::new(queue);
    let relay = Relay::of(&worker, queue.clone());
    let (worker, queue, relay, teller) = (&worker, queue.as_ref(), relay.as_ref(), &teller);
    let answer = move |event: Box<RawValue>, hard| async move {
        let answer = answered(worker, queue, relay, event, hard).await;
        // Once it is answered, the process is frozen. No telling makes the answer late.
        let now = worker.clock().now();
        let by = now + (hard.since(now) / 2).min(TELLING);
        teller.tell(worker.meter(), worker.clock(), by).await;
        answer
    };
    lambda::serve(answer).await
}

/// How long the traces of an invocation may take to be sent, where there is time.
const TELLING: Duration = Duration::from_secs(1);

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
