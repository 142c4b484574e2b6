//! Marking operations that were done before as completed, so that a queue can be adopted.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lines;
use crate::error::{BoxError, Error, ErrorKind};
use crate::handler::Router;
use crate::protocol::{self, IdempotencyKey, Imported, Output, Status};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::{Commit, Store};

/// Writes under way at once.
const AT_ONCE: usize = 16;

/// An operation that is done, as a line of JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportLine {
    /// The job's name.
    pub job: String,
    /// Names the operation.
    #[serde(rename = "idempotency-key", deserialize_with = "lines::key")]
    pub key: IdempotencyKey,
    /// Its payload, if it is known: then another payload under the key is refused.
    pub body: Option<Value>,
    /// What a replay answers.
    pub output: Option<Value>,
}

impl ImportLine {
    /// Reads a line; the error says what is missing.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            format!(
                "{}; a line is {{\"job\": \"..\", \"idempotency-key\": \"..\"}}",
                lines::fault(&error)
            )
        })
    }
}

/// What became of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Recorded as completed now.
    pub imported: u64,
    /// Recorded as completed before.
    pub already_completed: u64,
    /// In other hands: claimed, released, failed or unknown. Left alone.
    pub left_alone: u64,
}

impl fmt::Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { imported, already_completed, left_alone } = self;
        write!(
            f,
            "{imported} imported, {already_completed} completed before, {left_alone} in other \
             hands and left alone"
        )
    }
}

/// `import` as a command: reads the file, opens the store, and says what became of the lines.
/// Answers 1 if some were left alone.
pub async fn import_file(
    file: &Path,
    jobs: &Router,
    store: impl Future<Output = Result<Arc<dyn Store>, Error>>,
    namespace: &str,
    is_json: bool,
) -> Result<ExitCode, BoxError> {
    let lines = lines::read_lines(Some(file), ImportLine::read)?;
    let store = store.await?;
    let report = import(store.as_ref(), namespace, jobs, &lines, &SystemClock, &OsEntropy).await?;
    if is_json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(if report.left_alone == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Records operations of these jobs as completed where there is no record of them. Safe to
/// interrupt and to run again. Stops at the first store error.
pub async fn import(
    store: &dyn Store,
    namespace: &str,
    jobs: &Router,
    lines: &[ImportLine],
    clock: &dyn Clock,
    entropy: &dyn Entropy,
) -> Result<ImportReport, Error> {
    let one = async |line: &ImportLine| {
        let claim_id = entropy.claim_id();
        let done = imported(line, namespace, jobs)?;
        let write = protocol::import(done, claim_id.clone(), clock.now());
        let commit = store.commit(&write, &[]).await?;
        Ok::<_, Error>(match commit {
            Commit::Applied => Became::Imported,
            // My write landed and its reply was lost.
            Commit::Conflict(Some(record)) if record.claim_id == claim_id => Became::Imported,
            Commit::Conflict(Some(record)) if record.status == Status::Completed => {
                Became::AlreadyCompleted
            }
            _ => Became::LeftAlone,
        })
    };
    let mut became = stream::iter(lines).map(one).buffer_unordered(AT_ONCE);
    let mut report = ImportReport::default();
    while let Some(became) = became.try_next().await? {
        match became {
            Became::Imported => report.imported += 1,
            Became::AlreadyCompleted => report.already_completed += 1,
            Became::LeftAlone => report.left_alone += 1,
        }
    }
    Ok(report)
}

enum Became {
    Imported,
    AlreadyCompleted,
    LeftAlone,
}

fn imported(line: &ImportLine, namespace: &str, jobs: &Router) -> Result<Imported, Error> {
    let fault = |detail: String| Error::new(ErrorKind::Config, "import").with_detail(detail);
    let job = jobs.get(&line.job).ok_or_else(|| {
        fault(format!("no job is named {:?}; add it to the jobs, or correct the line", line.job))
    })?;
    let fingerprint = match &line.body {
        None => None,
        Some(body) => {
            let payload = job.payload(&lines::body_text(body));
            job.fingerprint(&payload.map_err(|error| fault(error.to_string()))?)
        }
    };
    let output = line.output.as_ref().map_or(Output::Omitted, |it| Output::Stored(it.to_string()));
    Ok(Imported {
        namespace: namespace.to_owned(),
        job: line.job.clone(),
        key: line.key.clone(),
        fingerprint,
        output,
        retention: job.policy.retention,
    })
}
