//! The workers of a local drill: processes of this very program, started again when they die.

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::process::Process;
use crate::drill::NAMESPACE;
use crate::error::BoxError;
use crate::protocol::Timestamp;
use crate::runtime::{Task, spawn};

/// What a worker needs to know.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub table: String,
    pub queue_url: String,
    pub dlq_url: String,
    /// Of an emulator that was started for this; otherwise the environment says it.
    pub endpoint: Option<String>,
    /// Jobs at once in each worker.
    pub at_once: usize,
}

/// Deaths that nobody has played and that are made up for: a machine is short of memory once.
const MORE_DEATHS: usize = 3;

/// Workers that run until this is dropped.
pub(super) struct Workers {
    _running: Vec<Task<()>>,
    deaths: Arc<AtomicUsize>,
    fault: watch::Receiver<Option<String>>,
}

impl Workers {
    /// Starts `count` of them, of which so many are to die.
    pub fn start(stage: &Stage, count: usize, to_die: usize) -> Result<Self, BoxError> {
        let most = to_die + MORE_DEATHS;
        let program = std::env::current_exe()?;
        let deaths = Arc::new(AtomicUsize::new(0));
        let (say, fault) = watch::channel(None);
        let running = (0..count).map(|_| {
            let (program, stage, deaths, say) =
                (program.clone(), stage.clone(), deaths.clone(), say.clone());
            spawn(async move {
                let fault = loop {
                    match ended(command(&program, &stage)).await {
                        // By a signal, as the drill has it: the next one takes its place.
                        Ok((status, _))
                            if status.code().is_none()
                                && deaths.fetch_add(1, Ordering::Relaxed) < most => {}
                        Ok((status, said)) => break format!("{status}\n{said}"),
                        Err(error) => break error.to_string(),
                    }
                };
                say.send_replace(Some(fault));
            })
        });
        Ok(Self { _running: running.collect(), deaths, fault })
    }

    /// How many have died.
    pub fn deaths(&self) -> usize {
        self.deaths.load(Ordering::Relaxed)
    }

    /// Returns with the reason once one cannot run.
    pub async fn failed(&self) -> BoxError {
        let mut fault = self.fault.clone();
        let said = fault.wait_for(Option::is_some).await.map(|fault| fault.clone());
        match said {
            Ok(Some(fault)) => format!("a worker of the drill cannot run: {fault}").into(),
            _ => "the workers of the drill have ended".into(),
        }
    }
}

fn command(program: &Path, stage: &Stage) -> Command {
    let mut command = Command::new(program);
    command.args(["drill", "--serve"]);
    command
        .env("ONLYONCE_DRILL", "1")
        .env("ONLYONCE_NAMESPACE", NAMESPACE)
        .env("ONLYONCE_STORE", format!("dynamodb://{}", stage.table))
        .env("ONLYONCE_QUEUE_URL", &stage.queue_url)
        .env("ONLYONCE_DLQ_URL", &stage.dlq_url)
        .env("ONLYONCE_CONCURRENCY", stage.at_once.to_string())
        .env("RUST_LOG", "error,onlyonce=warn");
    for other in ["ONLYONCE_RELAY", "ONLYONCE_HEALTH", "ONLYONCE_JOBS", "AWS_LAMBDA_RUNTIME_API"] {
        command.env_remove(other);
    }
    if let Some(endpoint) = &stage.endpoint {
        command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env_remove("AWS_SESSION_TOKEN").env_remove("AWS_PROFILE");
    }
    command
}

/// Runs a worker to its end: how it ended, and what it said last.
async fn ended(command: Command) -> Result<(ExitStatus, String), BoxError> {
    let mut process = Process::start(command)?;
    let status = process.end(Timestamp::from_millis(u64::MAX)).await?;
    Ok((status.ok_or("it goes on")?, process.said()))
}
