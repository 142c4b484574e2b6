//! One set of jobs, three lives: in Lambda, polling a queue, and on a developer's machine.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::warn;

use crate::config::{RelaySetting, Settings};
use crate::drill;
use crate::error::{BoxError, Error, ErrorKind};
use crate::front::{Poll, SqsQueue};
use crate::handler::Router;
use crate::lambda::{self, refuse_abort, teller};
use crate::relay::Relay;
use crate::runtime::{Task, is_lambda, spawn};
use crate::sdk;
use crate::service::Worker;
use crate::telemetry::{self, Teller};

/// How often a worker outside Lambda tells what it has counted, and for how long it may.
const TELLS_EACH: Duration = Duration::from_secs(60);
const TELLING: Duration = Duration::from_secs(5);

/// Serves these jobs with the store, namespace, concurrency and queues that the environment
/// names: in Lambda what it is invoked with, elsewhere the queue at `ONLYONCE_QUEUE_URL` and, as
/// `ONLYONCE_RELAY` says, the store's outbox, until the platform ends the process or SIGTERM or
/// SIGINT asks for a graceful stop.
pub async fn serve(jobs: Router) -> Result<(), BoxError> {
    telemetry::init();
    refuse_abort()?;
    let settings = Settings::from_env()?;
    let sdk = sdk::load().await;
    let store = settings.store.open(std::future::ready(sdk.clone())).await?;
    let (jobs, store) = drill::installed(&settings, &sdk, jobs, store)?;
    let worker = Worker::builder(store)
        .namespace(&settings.namespace)
        .concurrency(settings.concurrency)
        .build(jobs)?;
    let teller = teller(&settings);
    let has_dlq = settings.dlq_url.is_some();
    let queue = SqsQueue::new(&sdk).queue_url(settings.queue_url.clone()).dlq_url(settings.dlq_url);
    if is_lambda() {
        return lambda::serve(worker, queue, teller).await;
    }
    if !has_dlq {
        warn!(
            "ONLYONCE_DLQ_URL is not set: what fails for good stays in the queue, by whose redrive \
             policy it goes, and an event of the outbox that cannot be sent holds up those behind it"
        );
    }
    let fault = |detail| Error::new(ErrorKind::Config, "start").with_detail(detail);
    let queue = Arc::new(queue);
    let relay = match settings.relay {
        RelaySetting::Off => None,
        RelaySetting::Also | RelaySetting::Only => {
            let none = "ONLYONCE_RELAY is set, and the store that ONLYONCE_STORE names has no outbox; \
                 unset it, or use dynamodb://, postgres:// or sqlite:, which have one";
            Some(Relay::of(&worker, queue.clone()).ok_or_else(|| fault(none))?)
        }
    };
    let poll = match (settings.relay, settings.queue_url) {
        (RelaySetting::Only, _) => None,
        (_, Some(url)) => Some(Poll::open(&sdk, url).await?.health(settings.health)),
        (_, None) => {
            return Err(fault(
                "this is not AWS Lambda, and ONLYONCE_QUEUE_URL is not set: there is no queue to \
                 poll; where only an outbox is to be relayed, set ONLYONCE_RELAY=only",
            )
            .into());
        }
    };
    let (told, _listening) = stop_signal()?;
    let relaying = OptionFuture::from(relay.as_ref().map(|relay| relay.poll(told.clone())));
    let polling = OptionFuture::from(
        poll.as_ref().map(|poll| poll.serve(&worker, queue.as_ref(), told.clone())),
    );
    let relaying = async {
        relaying.await;
        Ok(())
    };
    let polling = async { polling.await.transpose() };
    let ended = tokio::select! {
        biased;
        ended = async { tokio::try_join!(relaying, polling) } => ended,
        () = telling(&teller, &worker) => Ok(((), None)),
    };
    tell(&teller, &worker).await;
    ended.map(drop).map_err(BoxError::from)
}

/// Tells what was counted, again and again.
async fn telling(teller: &Teller, worker: &Worker) {
    loop {
        worker.clock().sleep_until(worker.clock().now() + TELLS_EACH).await;
        tell(teller, worker).await;
    }
}

async fn tell(teller: &Teller, worker: &Worker) {
    teller.tell(worker.meter(), worker.clock(), worker.clock().now() + TELLING).await;
}

/// Turns true at the first SIGTERM or SIGINT, as long as the task is kept.
fn stop_signal() -> Result<(watch::Receiver<bool>, Task<()>), BoxError> {
    let (say, told) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listening = spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // Nobody listens any more if the worker has ended already.
        let _ = say.send(true);
        std::future::pending::<()>().await;
    });
    Ok((told, listening))
}

#[cfg(feature = "cli")]
mod cli {
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;

    use clap::{Parser, Subcommand};

    use crate::config::Settings;
    use crate::error::BoxError;
    use crate::front::SqsQueue;
    use crate::handler::Router;
    use crate::ops::dev::command::{DevArguments, Jobs};
    use crate::ops::{self, Desk, DoctorArguments, OperateVerb, SetupArguments};
    use crate::sdk;

    /// A worker. Without a verb it serves: in Lambda what it is invoked with, elsewhere the queue
    /// at ONLYONCE_QUEUE_URL.
    #[derive(Parser)]
    struct Arguments {
        #[command(subcommand)]
        verb: Option<Verb>,
        /// Print JSON.
        #[arg(long, global = true)]
        json: bool,
    }

    #[derive(Subcommand)]
    enum Verb {
        /// Run messages through the jobs on this machine, with copies and kills.
        Dev(DevArguments),
        /// Make the table and the queues that are not there.
        #[command(after_help = "In the store that ONLYONCE_STORE names.")]
        Setup(SetupArguments),
        /// Record operations that were done before as completed, one per line of JSON.
        #[command(after_help = "Safe to interrupt and to run again: only what has no record is \
            written, in the store that ONLYONCE_STORE names.")]
        Import {
            /// The file: {"job": "..", "idempotency-key": "..", "body": .., "output": ..}, the last
            /// two if they are known.
            file: PathBuf,
        },
        #[command(flatten)]
        Operate(OperateVerb),
        /// Look for what is wrong with a deployment of these jobs, or with a template of one.
        Doctor(DoctorArguments),
    }

    /// Gives your own binary all three lives: in Lambda, polling, and `dev FILE.jsonl`; and
    /// `setup`, `import FILE.jsonl`, for a queue that is in use already, `replay`, `resolve`,
    /// `release` and `forget` as the command has them, and `doctor`: here with what each job compares
    /// and how long it is kept.
    ///
    /// Exit status: 0 = fine, 1 = a failure or a broken guarantee, 2 = wrong usage.
    pub async fn main(jobs: Router) -> ExitCode {
        ops::end_with_the_reader();
        let Arguments { verb, json } = Arguments::parse();
        let ended = match verb {
            Some(Verb::Dev(arguments)) => arguments.run(Jobs::Given(jobs), json).await,
            Some(Verb::Setup(arguments)) => set_up(&arguments, json).await,
            Some(Verb::Import { file }) => import(&jobs, &file, json).await,
            Some(Verb::Operate(verb)) => operate(jobs, verb, json).await,
            Some(Verb::Doctor(arguments)) => doctor(&jobs, arguments, json).await,
            None => super::serve(jobs).await.map(|()| ExitCode::SUCCESS),
        };
        ops::end(ended, json)
    }

    async fn set_up(arguments: &SetupArguments, is_json: bool) -> Result<ExitCode, BoxError> {
        // A store says what is risky about it.
        crate::telemetry::init();
        arguments.run(&Settings::from_env()?, None, is_json).await
    }

    async fn doctor(
        jobs: &Router,
        arguments: DoctorArguments,
        is_json: bool,
    ) -> Result<ExitCode, BoxError> {
        let settings = Settings::from_env()?;
        Box::pin(arguments.run(settings, Some(jobs), sdk::load(), is_json)).await
    }

    async fn operate(jobs: Router, verb: OperateVerb, is_json: bool) -> Result<ExitCode, BoxError> {
        let Settings { store, namespace, queue_url, .. } = Settings::from_env()?;
        let store = store.kept()?.open(sdk::load()).await?;
        let desk = Desk { store, namespace, jobs, is_json };
        let queue = async |given: Option<String>| {
            let url = given.or(queue_url);
            let url = url.ok_or(ops::NO_QUEUE)?;
            Ok(SqsQueue::new(&sdk::load().await).queue_url(Some(url)))
        };
        Box::pin(verb.run(&desk, queue)).await
    }

    async fn import(jobs: &Router, file: &Path, is_json: bool) -> Result<ExitCode, BoxError> {
        let Settings { store, namespace, .. } = Settings::from_env()?;
        let store = async { store.kept()?.open(sdk::load()).await };
        ops::import_file(file, jobs, store, &namespace, is_json).await
    }
}

#[cfg(feature = "cli")]
pub use cli::main;
