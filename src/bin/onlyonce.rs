//! The operator's command.
//!
//! Exit status: 0 = fine, 1 = findings or failure, 2 = wrong usage.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use onlyonce::config::{Settings, StoreSetting};
use onlyonce::front::SqsQueue;
use onlyonce::handler::Router;
use onlyonce::ops::dev::command::{DevArguments, Jobs};
use onlyonce::ops::{
    self, Desk, DlqArguments, DoctorArguments, DrillArguments, ListArguments, OperateVerb, Queues,
    RecordName, SendPlan, SetupArguments,
};
use onlyonce::producer::Producer;
use onlyonce::sdk;
use onlyonce::store::Store;
use onlyonce::{BoxError, Error};

/// Run SQS jobs once per key.
#[derive(Parser)]
#[command(
    version,
    after_help = "Settings come from ONLYONCE_STORE, ONLYONCE_JOBS, ONLYONCE_NAMESPACE, \
    ONLYONCE_QUEUE_URL and ONLYONCE_DLQ_URL, and from the variables of every AWS SDK."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Print JSON: one document, or one line per entry of a list.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Run messages through the jobs file on this machine, with copies and kills.
    Dev(DevArguments),
    /// Check the jobs file, if there is one, and make the table and the queues that are not there.
    #[command(after_help = "Example:\n  ONLYONCE_STORE=dynamodb://onlyonce onlyonce setup\n  \
        onlyonce setup --queue jobs\n  \
        ONLYONCE_STORE=sqlite:jobs.db onlyonce setup\n  \
        ONLYONCE_STORE=rediss://user:password@host:6379/0 onlyonce setup\n  \
        ONLYONCE_STORE=postgres://user:password@host/database onlyonce setup")]
    Setup(SetupArguments),
    /// Send messages, one per line of JSON. Of a file nothing is sent if a line is faulty; standard
    /// input is sent as it comes.
    #[command(after_help = "Example:\n  echo '{\"job\":\"user.welcome\",\
        \"idempotency-key\":\"user:42:welcome:v1\",\"body\":{\"user_id\":42}}' | onlyonce send\n\n\
        Safe to interrupt and to run again: under its key nothing runs twice.")]
    Send {
        /// The file; standard input by default.
        file: Option<PathBuf>,
        /// The queue; ONLYONCE_QUEUE_URL by default.
        #[arg(long)]
        queue_url: Option<String>,
        /// How long the queue keeps each message to itself, at most 900; not for FIFO queues.
        #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=900))]
        delay: Option<u64>,
        /// Refuse keys that look random, instead of warning.
        #[arg(long)]
        strict: bool,
    },
    /// Record operations that were done before as completed, one per line of JSON. Jobs in Rust are
    /// known to their own binary: there, too, it is `import`.
    #[command(
        after_help = "Example:\n  onlyonce import examples/done.jsonl\n\nSafe to interrupt and to run again: only what has no record is written."
    )]
    Import {
        /// The file: {"job": "..", "idempotency-key": "..", "body": .., "output": ..}, the last two
        /// if they are known.
        file: PathBuf,
    },
    /// Show one record: what it holds, and what happened when.
    #[command(after_help = "Example:\n  onlyonce inspect user.welcome user:42:welcome:v1")]
    Inspect {
        /// The record.
        #[command(flatten)]
        target: RecordName,
    },
    /// List records by status, job and age.
    #[command(after_help = "Example:\n  onlyonce list failed --job user.welcome --newer 2h\n  \
        onlyonce list completed --scan --limit 10 --json")]
    List(ListArguments),
    #[command(flatten)]
    Operate(OperateVerb),
    /// The dead-letter queue: what is in it and why, and bringing it back.
    Dlq(DlqArguments),
    /// Play a queue's worst days (copies, kills, lost answers, redrives) and judge what came of them.
    Drill(DrillArguments),
    /// Look for what is wrong with a deployment, or with a template of one.
    Doctor(DoctorArguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    ops::end_with_the_reader();
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    ops::end(run(arguments).await, is_json)
}

async fn run(arguments: Arguments) -> Result<ExitCode, BoxError> {
    let settings = Settings::from_env()?;
    let is_json = arguments.json;
    match arguments.verb {
        Verb::Dev(arguments) => arguments.run(Jobs::File(settings.jobs), is_json).await,
        Verb::Setup(arguments) => {
            // A store says what is risky about it.
            onlyonce::telemetry::init();
            arguments.run(&settings, Some(&settings.jobs), is_json).await
        }
        Verb::Send { file, queue_url, delay, strict } => {
            let url = queue_url.or_else(|| settings.queue_url.clone()).ok_or(ops::NO_QUEUE)?;
            let jobs = jobs(&settings)?;
            let plan = SendPlan {
                jobs: &jobs,
                namespace: &settings.namespace,
                queue_url: &url,
                delay,
                is_strict: strict,
                is_json,
            };
            let producer = Producer::new(&sdk::load().await, &url);
            ops::send_file(file, &producer, &plan).await
        }
        Verb::Import { file } => {
            let jobs = Router::from_jobs_file(&settings.jobs)?;
            let store = store(&settings);
            ops::import_file(&file, &jobs, store, &settings.namespace, is_json).await
        }
        Verb::Inspect { target } => {
            let id = target.id(&settings.namespace)?;
            ops::inspect(store(&settings).await?.as_ref(), &id, is_json).await
        }
        Verb::List(arguments) => {
            let store = store(&settings).await?;
            arguments.run(store.as_ref(), &settings.namespace, is_json).await
        }
        Verb::Drill(arguments) if arguments.is_worker() => {
            DrillArguments::end_with_the_drill();
            Box::pin(onlyonce::serve(Router::new())).await.map(|()| ExitCode::SUCCESS)
        }
        Verb::Drill(arguments) => {
            let table = match settings.store {
                StoreSetting::DynamoDb { table } => Some(table),
                _ => None,
            };
            Box::pin(arguments.run(table, settings.dlq_url, is_json)).await
        }
        Verb::Operate(verb) => {
            let url = settings.queue_url.clone();
            let queue = async |given: Option<String>| {
                let url = given.or(url).ok_or(ops::NO_QUEUE)?;
                Ok(SqsQueue::new(&sdk::load().await).queue_url(Some(url)))
            };
            verb.run(&desk(&settings, is_json).await?, queue).await
        }
        Verb::Dlq(arguments) => {
            let queues =
                Queues { queue_url: settings.queue_url.clone(), dlq_url: settings.dlq_url.clone() };
            let desk = async || desk(&settings, is_json).await;
            Box::pin(arguments.run(queues, sdk::load(), desk)).await
        }
        Verb::Doctor(arguments) => {
            Box::pin(arguments.run(settings, None, sdk::load(), is_json)).await
        }
    }
}

/// As the worker reads them; the machine of a producer or an operator may have no jobs file.
fn jobs(settings: &Settings) -> Result<Router, BoxError> {
    Ok(match settings.jobs.exists() {
        true => Router::from_jobs_file_without_secrets(&settings.jobs)?,
        false => Router::new(),
    })
}

async fn desk(settings: &Settings, is_json: bool) -> Result<Desk, BoxError> {
    let namespace = settings.namespace.clone();
    Ok(Desk { store: store(settings).await?, namespace, jobs: jobs(settings)?, is_json })
}

async fn store(settings: &Settings) -> Result<Arc<dyn Store>, Error> {
    settings.store.kept()?.open(sdk::load()).await
}
