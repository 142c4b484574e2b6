//! The operator's verbs as commands: their arguments and their output.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::Value;

use super::{Refused, replay, transition};
use crate::error::BoxError;
use crate::front::SqsQueue;
use crate::handler::{MAX_OUTPUT, Router};
use crate::ops::RecordView;
use crate::ops::ending::{NO_RECORD, Usage};
use crate::protocol::{
    self, Forget, IdempotencyKey, Output, Record, RecordId, Release, Resolution, Resolve, Status,
};
use crate::service::SKEW;
use crate::store::Store;

/// What an operator works with.
pub struct Desk {
    /// The records.
    pub store: Arc<dyn Store>,
    /// Separates deployments in one store.
    pub namespace: String,
    /// The jobs, as far as they are known here.
    pub jobs: Router,
    /// Whether to print JSON.
    pub is_json: bool,
}

/// One record.
#[derive(Args, Clone, Debug)]
pub struct RecordName {
    /// The job's name, or the 64 digits of a key digest from a log line.
    job: String,
    /// The key; left out with a digest.
    key: Option<String>,
}

impl RecordName {
    /// The digest that it stands for.
    pub fn id(&self, namespace: &str) -> Result<RecordId, BoxError> {
        Ok(match &self.key {
            Some(key) => RecordId::new(namespace, &self.job, &IdempotencyKey::new(key)?),
            None => RecordId::from_hex(&self.job).ok_or(NO_RECORD)?,
        })
    }
}

/// A record that is to be changed.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Its name.
    #[command(flatten)]
    name: RecordName,
    /// How far clocks may differ: what the workers are built with, if that is more.
    #[arg(long, value_name = "SECONDS", default_value_t = SKEW.as_secs(),
        value_parser = clap::value_parser!(u64).range(SKEW.as_secs()..))]
    skew: u64,
}

impl Target {
    fn id(&self, namespace: &str) -> Result<RecordId, BoxError> {
        self.name.id(namespace)
    }

    fn skew(&self) -> Duration {
        Duration::from_secs(self.skew)
    }
}

/// What changes one record.
#[derive(Subcommand, Clone, Debug)]
pub enum OperateVerb {
    /// Let go of a claim whose worker died, once its lease is over.
    #[command(after_help = "Example:\n  onlyonce release user.welcome user:42:welcome:v1\n\n\
        Its job is due at once, and runs when the queue brings its message again.")]
    Release {
        /// The record.
        #[command(flatten)]
        target: Target,
    },
    /// Say what became of a job whose outcome is unknown.
    #[command(
        group = ArgGroup::new("found").required(true),
        after_help = "Example:\n  onlyonce resolve order.settle order:7:settle --not-done\n  \
        onlyonce resolve order.settle order:7:settle --done --effect charge \
        --result '{\"id\":\"ch_1\"}'\n\n\
        Look at the provider first. An effect that was done is not done again, and the job goes on \
        with what comes after it once its message is back (`onlyonce dlq replay`). --done without \
        an effect says that all of the job was done: nothing of it runs again."
    )]
    Resolve {
        /// The record.
        #[command(flatten)]
        target: Target,
        /// It was done: all of it, or the effect named.
        #[arg(long, group = "found")]
        done: bool,
        /// It was not done: no effect in doubt, or not the one named.
        #[arg(long, group = "found")]
        not_done: bool,
        /// The effect.
        #[arg(long, value_name = "NAME")]
        effect: Option<String>,
        /// What the effect answered, as JSON its job reads; `null` if it reads nothing.
        #[arg(long, value_name = "JSON", value_parser = json, requires = "effect")]
        result: Option<Value>,
        /// What copies of the message are answered with.
        #[arg(long, value_name = "JSON", value_parser = json, requires = "done",
            conflicts_with = "effect")]
        output: Option<Value>,
        /// For how long after it began a request may still take effect.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        settles_within: u64,
    },
    /// Forget that a key was used: its next message runs as if it were the first.
    #[command(after_help = "Example:\n  onlyonce forget user.welcome user:42:welcome:v1 --yes\n\n\
        Whatever the job did before may be done again. Late writes of earlier attempts still lose.")]
    Forget {
        /// The record.
        #[command(flatten)]
        target: Target,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Run a failed job again, with its payload: one message to the queue.
    #[command(after_help = "Example:\n  onlyonce replay user.welcome user:42:welcome:v1 \
        --body payload.json\n\n\
        Of a message in the dead-letter queue, use `onlyonce dlq replay`. Safe to interrupt and to \
        run again: under its key nothing runs twice.")]
    Replay {
        /// The record.
        #[command(flatten)]
        target: Target,
        /// The file with the body, as it was sent first; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        body: PathBuf,
        /// The message group, for a FIFO queue.
        #[arg(long)]
        group: Option<String>,
        /// The queue; ONLYONCE_QUEUE_URL by default.
        #[arg(long)]
        queue_url: Option<String>,
    },
}

fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("this is no JSON: {error}"))
}

impl OperateVerb {
    /// Runs it. Answers 1 if the record was left as it is. `queue` sends to where a URL says, or to
    /// the queue that is set.
    pub async fn run<Q>(self, desk: &Desk, queue: Q) -> Result<ExitCode, BoxError>
    where
        Q: AsyncFnOnce(Option<String>) -> Result<SqsQueue, BoxError>,
    {
        let store = desk.store.as_ref();
        let changed = match &self {
            Self::Release { target } => {
                let (id, skew) = (target.id(&desk.namespace)?, target.skew());
                transition(store, &id, |record, claim_id, now| {
                    protocol::release(record, &Release { claim_id, skew }, now)
                })
                .await
            }
            Self::Resolve { target, effect, result, output, settles_within, .. } => {
                let resolution = self.resolution(effect, result, output)?;
                let (id, skew) = (target.id(&desk.namespace)?, target.skew());
                let settles_within = Duration::from_secs(*settles_within);
                transition(store, &id, |record, claim_id, now| {
                    let job = desk.jobs.get(&record.job);
                    let retention = job.map(|job| job.policy.retention).unwrap_or_default();
                    let resolution = resolution.clone();
                    let request = Resolve { claim_id, skew, settles_within, retention, resolution };
                    protocol::resolve(record, &request, now)
                })
                .await
            }
            Self::Forget { target, yes } => {
                let (id, skew) = (target.id(&desk.namespace)?, target.skew());
                if !yes {
                    ask(&id)?;
                }
                transition(store, &id, |record, claim_id, now| {
                    protocol::forget(record, &Forget { claim_id, skew }, now)
                })
                .await
            }
            Self::Replay { target, body, group, queue_url } => {
                let id = target.id(&desk.namespace)?;
                let body = replay::read(body)?;
                let queue = queue(queue_url.clone()).await?;
                replay::replay(desk, &id, body, group.clone(), &queue).await
            }
        };
        match changed {
            Ok(record) => self.tell(record, desk.is_json),
            Err(error) => refused(error, desk.is_json),
        }
    }

    fn resolution(
        &self,
        effect: &Option<String>,
        result: &Option<Value>,
        output: &Option<Value>,
    ) -> Result<Resolution, BoxError> {
        let text = |json: &Value| {
            let text = json.to_string();
            match text.len() <= MAX_OUTPUT {
                true => Ok(text),
                false => Err(format!("it is over {MAX_OUTPUT} bytes, which no job keeps")),
            }
        };
        Ok(match (self, effect, result) {
            (Self::Resolve { done: true, .. }, Some(effect), Some(result)) => {
                Resolution::EffectDone { effect: effect.clone(), result: text(result)? }
            }
            (Self::Resolve { done: true, .. }, Some(_), None) => {
                return Err(Usage::new("give what the effect answered: --result JSON").into());
            }
            (Self::Resolve { done: true, .. }, None, _) => Resolution::JobDone(match output {
                Some(output) => Output::Stored(text(output)?),
                None => Output::Omitted,
            }),
            (_, _, Some(_)) => return Err(Usage::new("what was not done has no --result").into()),
            _ => Resolution::NotDone { effect: effect.clone() },
        })
    }

    fn tell(&self, record: Record, is_json: bool) -> Result<ExitCode, BoxError> {
        let status = record.status;
        let open = record.open_intent().map(str::to_owned);
        let view = RecordView::from(record);
        if is_json {
            println!("{}", serde_json::to_string(&view)?);
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} {}: {}", view.job, view.key, self.said(status, open));
        Ok(ExitCode::SUCCESS)
    }

    fn said(&self, status: Status, open: Option<String>) -> String {
        match (self, status, open) {
            (Self::Forget { .. }, ..) => {
                "forgotten; its next message runs as if it were the first".to_owned()
            }
            (Self::Replay { .. }, ..) => "sent to the queue, and due".to_owned(),
            (Self::Resolve { .. }, Status::Unknown, Some(effect)) => {
                format!("noted; effect {effect:?} is in doubt still, resolve it next")
            }
            (Self::Resolve { .. }, Status::Completed, _) => "completed".to_owned(),
            (Self::Resolve { .. }, ..) => {
                "released, and due; bring its message back: onlyonce dlq replay".to_owned()
            }
            _ => "released, and due; it runs when the queue brings its message".to_owned(),
        }
    }
}

/// A refusal is an answer, and says so in JSON, too.
fn refused(error: BoxError, is_json: bool) -> Result<ExitCode, BoxError> {
    match error.downcast_ref::<Refused>() {
        Some(why) if is_json => {
            let until = why.until().map(protocol::Timestamp::millis);
            let told = serde_json::json!({ "error": why.to_string(), "until": until });
            eprintln!("{told}");
            Ok(ExitCode::FAILURE)
        }
        _ => Err(error),
    }
}

fn ask(id: &RecordId) -> Result<(), BoxError> {
    if !stdin().is_terminal() {
        return Err(Usage::new(
            "this forgets what was done; nobody is there to ask, so give --yes",
        )
        .into());
    }
    eprint!("Forget {id}? Whatever it did may be done again. [y/N] ");
    stderr().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err("left as it is".into()),
    }
}
