//! The operator's command.
//!
//! Exit status: 0 = fine, 1 = findings or failure, 2 = wrong usage.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};
use comfy_table::{ContentArrangement, Table};
use onlyonce::config::{Settings, StoreSetting};
use onlyonce::front::SqsQueue;
use onlyonce::handler::Router;
use onlyonce::ops::dev::command::{DevArguments, Jobs};
use onlyonce::ops::{
    self, Desk, DlqArguments, DrillArguments, OperateVerb, Queues, RecordView, SendPlan, instant,
};
use onlyonce::producer::Producer;
use onlyonce::protocol::{IdempotencyKey, RecordId, Status, Timestamp};
use onlyonce::runtime::SystemClock;
use onlyonce::sdk;
use onlyonce::store::Store;
use onlyonce::{BoxError, Error};
use serde::Serialize;

/// Run SQS jobs once per key.
#[derive(Parser)]
#[command(
    version,
    after_help = "Settings come from ONLYONCE_STORE, ONLYONCE_JOBS, \
    ONLYONCE_NAMESPACE and ONLYONCE_QUEUE_URL, and from the variables of every AWS SDK."
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
    /// Check the jobs file, if there is one, and make the table if it is not there.
    #[command(after_help = "Example:\n  ONLYONCE_STORE=dynamodb://onlyonce onlyonce setup\n  \
        ONLYONCE_STORE=sqlite:jobs.db onlyonce setup\n  \
        ONLYONCE_STORE=rediss://user:password@host:6379/0 onlyonce setup\n  \
        ONLYONCE_STORE=postgres://user:password@host/database onlyonce setup")]
    Setup,
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
        /// The job's name, or the 64 digits of a key digest from a log line.
        job: String,
        /// The key; left out with a digest.
        key: Option<String>,
    },
    /// List records that wait for a retry or a person.
    #[command(after_help = "Example:\n  onlyonce list failed --limit 20")]
    List {
        /// Which.
        status: Parked,
        /// How many at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    #[command(flatten)]
    Operate(OperateVerb),
    /// The dead-letter queue: what is in it and why, and bringing it back.
    Dlq(DlqArguments),
    /// Play a queue's worst days (copies, kills, lost answers, redrives) and judge what came of them.
    Drill(DrillArguments),
}

#[derive(Clone, Copy, ValueEnum)]
enum Parked {
    Released,
    Failed,
    Unknown,
}

impl From<Parked> for Status {
    fn from(parked: Parked) -> Self {
        match parked {
            Parked::Released => Self::Released,
            Parked::Failed => Self::Failed,
            Parked::Unknown => Self::Unknown,
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    ops::end_with_the_reader();
    let arguments = Arguments::parse();
    let is_json = arguments.json;
    match run(arguments).await {
        Ok(code) => code,
        Err(error) if is_json => {
            eprintln!("{}", serde_json::json!({ "error": error.to_string() }));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("onlyonce: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<ExitCode, BoxError> {
    let settings = Settings::from_env()?;
    let is_json = arguments.json;
    match arguments.verb {
        Verb::Dev(arguments) => arguments.run(Jobs::File(settings.jobs), is_json).await,
        Verb::Setup => setup(&settings, is_json).await,
        Verb::Send { file, queue_url, delay, strict } => {
            let url = queue_url.or_else(|| settings.queue_url.clone()).ok_or(NO_QUEUE)?;
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
        Verb::Inspect { job, key } => {
            let id = match key {
                Some(key) => RecordId::new(&settings.namespace, &job, &IdempotencyKey::new(key)?),
                None => RecordId::from_hex(&job)
                    .ok_or("give a job and a key, or a key digest of 64 hex digits")?,
            };
            inspect(&settings, &id, is_json).await
        }
        Verb::List { status, limit } => list(&settings, status.into(), limit, is_json).await,
        Verb::Drill(arguments) if arguments.is_worker() => {
            DrillArguments::end_with_the_drill();
            onlyonce::serve(Router::new()).await.map(|()| ExitCode::SUCCESS)
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
                let url = given.or(url).ok_or(NO_QUEUE)?;
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
    }
}

const NO_QUEUE: &str = "no queue: give --queue-url or set ONLYONCE_QUEUE_URL";

/// As the worker reads them; the machine of a producer or an operator may have no jobs file.
fn jobs(settings: &Settings) -> Result<Router, BoxError> {
    Ok(match settings.jobs.exists() {
        true => Router::from_jobs_file_in(&settings.jobs, &|_| Some("not:needed".to_owned()))?,
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

async fn setup(settings: &Settings, is_json: bool) -> Result<ExitCode, BoxError> {
    // A store says what is risky about it.
    onlyonce::telemetry::init();
    // A worker in Rust has no jobs file; one that is named is there.
    let has_jobs = settings.jobs.exists() || std::env::var_os("ONLYONCE_JOBS").is_some();
    if has_jobs {
        Router::from_jobs_file(&settings.jobs)?;
    }
    let made = settings.store.kept()?.set_up(sdk::load(), &SystemClock).await?;
    if is_json {
        let jobs = has_jobs.then_some(&settings.jobs);
        println!("{}", serde_json::json!({ "jobs": jobs, "table_made": made }));
    } else {
        let jobs = settings.jobs.display();
        if has_jobs {
            println!("jobs file {jobs} is fine");
        } else {
            println!("there is no {jobs} here, and none was checked");
        }
        match (&settings.store, made) {
            (StoreSetting::Redis(_), _) => println!("Redis answers"),
            (_, true) => println!("the table is made"),
            (_, false) => println!("the table was there already"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn inspect(settings: &Settings, id: &RecordId, is_json: bool) -> Result<ExitCode, BoxError> {
    let Some(record) = ops::inspect(store(settings).await?.as_ref(), id).await? else {
        return Err(format!(
            "there is no record {id} in this store; job, key and ONLYONCE_NAMESPACE name it"
        )
        .into());
    };
    if is_json {
        print_json(&record)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    if let serde_json::Value::Object(fields) = serde_json::to_value(&record)? {
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            let text = match (name.as_str(), value.as_str()) {
                (_, Some(text)) => text.to_owned(),
                ("created_at" | "updated_at" | "lease_until" | "not_before", None) => {
                    time(&value, 1)
                }
                ("expires_at", None) => time(&value, 1000),
                _ => value.to_string(),
            };
            table.add_row([name, text]);
        }
    }
    println!("{table}");
    for moment in record.timeline() {
        println!("{}  {}", instant(moment.at), moment.what);
    }
    Ok(ExitCode::SUCCESS)
}

/// An instant of so many milliseconds a unit, as people read it.
fn time(value: &serde_json::Value, unit: u64) -> String {
    let at = value.as_u64().map(|n| Timestamp::from_millis(n.saturating_mul(unit)));
    at.map_or_else(|| value.to_string(), instant)
}

async fn list(
    settings: &Settings,
    status: Status,
    limit: usize,
    is_json: bool,
) -> Result<ExitCode, BoxError> {
    let store = store(settings).await?;
    let records = ops::list(store.as_ref(), &settings.namespace, status, limit).await?;
    if is_json {
        records.iter().try_for_each(print_json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["job", "key", "attempt", "quarantine", "error"]);
    for RecordView { job, key, attempt, quarantine, error, .. } in &records {
        table.add_row([
            job.clone(),
            key.clone(),
            attempt.to_string(),
            quarantine.unwrap_or("-").to_owned(),
            error.clone().unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn print_json(value: &impl Serialize) -> Result<(), BoxError> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
