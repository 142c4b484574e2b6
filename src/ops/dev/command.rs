//! `dev` as a command: its arguments, its progress, its output.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Plan, Receiver, Report, run};
use crate::error::BoxError;
use crate::handler::Router;
use crate::ops::{MessageLine, read_lines};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::SqliteStore;

/// What `dev` is asked for.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Time runs ten times faster, the jobs' timeouts included: your own code \
    that waits for something real needs --real.\n\nExample:\n  onlyonce dev \
    examples/orders.jsonl --duplicates 3 --crash 0.2")]
pub struct DevArguments {
    /// Messages, one per line: {"job": .., "idempotency-key": .., "body": ..}. Standard input if
    /// left out.
    file: Option<PathBuf>,
    /// Extra copies of each message.
    #[arg(long, default_value_t = 0)]
    duplicates: usize,
    /// The chance, 0 to 1, that an invocation is killed at some boundary.
    #[arg(long, default_value_t = 0.0, value_parser = chance)]
    crash: f64,
    /// Decides which are killed, and where. What they hold then depends on time, too.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// SQL that makes the tables that `row` jobs write to, and what is in them at first. Rows go
    /// to a database of this run alone.
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// Call the real URLs and mail servers instead of a local receiver, and let time run as it
    /// does.
    #[arg(long)]
    real: bool,
    /// Run again whenever the file changes.
    #[arg(long, requires = "file")]
    watch: bool,
}

fn chance(text: &str) -> Result<f64, String> {
    let chance: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=1.0).contains(&chance) { Ok(chance) } else { Err("give a number from 0 to 1".into()) }
}

/// Where the jobs come from.
pub enum Jobs {
    /// From a program of its own.
    Given(Router),
    /// From a jobs file.
    File(PathBuf),
}

impl Jobs {
    /// Secrets that are not set are made up, unless they go to the real world.
    fn load(&self, is_real: bool) -> Result<Router, BoxError> {
        match self {
            Self::Given(jobs) => Ok(jobs.clone()),
            Self::File(path) if is_real => Ok(Router::from_jobs_file(path)?),
            Self::File(path) => {
                // A login has a colon.
                let made_up =
                    |name: &str| Some(std::env::var(name).unwrap_or_else(|_| "made:up".to_owned()));
                Ok(Router::from_jobs_file_in(path, &made_up)?)
            }
        }
    }
}

impl DevArguments {
    /// Runs it, again and again if it watches. Answers 1 if a guarantee was broken.
    pub async fn run(&self, jobs: Jobs, is_json: bool) -> Result<ExitCode, BoxError> {
        loop {
            let seen = self.changed_at();
            let report = self.once(&jobs, is_json).await;
            if !self.watch {
                let holds = report?.holds();
                return Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            if let Err(error) = report {
                eprintln!("{error}");
            }
            eprintln!("waiting for a change; end with Ctrl-C");
            while self.changed_at() == seen {
                SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(300)).await;
            }
        }
    }

    fn changed_at(&self) -> Option<SystemTime> {
        let file = self.file.as_ref()?;
        std::fs::metadata(file).and_then(|data| data.modified()).ok()
    }

    async fn once(&self, jobs: &Jobs, is_json: bool) -> Result<Report, BoxError> {
        let router = jobs.load(self.real)?;
        let lines = read_lines(self.file.as_deref(), MessageLine::read)?;
        let plan = Plan { duplicates: self.duplicates, crash: self.crash, seed: self.seed };
        let receiver = if self.real { None } else { Some(Receiver::start().await?) };
        let bar = progress_bar();
        let progress = |done: usize, all: usize| {
            bar.set_length(all.try_into().unwrap_or(u64::MAX));
            bar.set_position(done.try_into().unwrap_or(u64::MAX));
        };
        let records = Scratch::new();
        let store = Arc::new(SqliteStore::open(&records.0).await?);
        if let Some(file) = &self.sql {
            let sql = std::fs::read_to_string(file);
            let sql = sql.map_err(|error| format!("{}: {error}", file.display()))?;
            store.run_sql(sql).await?;
        }
        let report = run(&lines, &plan, &router, store, receiver.as_ref(), &progress).await?;
        bar.finish_and_clear();
        if is_json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!("{report}");
        }
        if report.dead_letters.keys().any(|reason| reason.contains("no such table")) {
            eprintln!(
                "rows go to a database of this run alone; make its tables, and what is in them at \
                 first, with --sql FILE"
            );
        }
        Ok(report)
    }
}

/// A database of this run alone: records of the last one would replay everything.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("onlyonce-dev-{}.db", OsEntropy.claim_id().as_str());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for ending in ["db", "db-wal", "db-shm"] {
            // What is not there need not be removed.
            let _ = std::fs::remove_file(self.0.with_extension(ending));
        }
    }
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("{bar:40} {pos}/{len} messages, {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
