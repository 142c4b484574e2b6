//! `jobs.toml`: jobs that need no Rust.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::effect::FieldFault;
use super::fault::Faults;
use super::fingerprint::FingerprintText;
use super::message::MessageTable;
use super::secret::SecretTable;
use crate::handler::{Job, Router};
use crate::protocol::{Retention, RetryPolicy};

/// Looks a variable of the environment up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsFile {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    message: MessageTable,
    #[serde(default)]
    job: BTreeMap<String, Spanned<JobTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    retention: Option<RetentionText>,
    retry: Option<RetryTable>,
}

/// What every job has, and below it what its effect takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobTable {
    pub effect: Option<String>,
    pub guarantee: Option<String>,
    retention: Option<RetentionText>,
    retry: Option<RetryTable>,
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    pub fingerprint: Option<FingerprintText>,
    // Of the `http` effect.
    pub method: Option<String>,
    pub url: Option<String>,
    pub body: Option<String>,
    pub key_header: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    pub key_window: Option<Duration>,
    #[serde(default, deserialize_with = "secret")]
    pub secret: Option<SecretTable>,
    #[serde(default)]
    pub allow_hosts: Vec<String>,
}

#[derive(Clone, Copy)]
struct RetentionText(Retention);

impl<'de> Deserialize<'de> for RetentionText {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        if text == "forever" {
            return Ok(Self(Retention::Forever));
        }
        match humantime::parse_duration(&text) {
            Ok(kept) if !kept.is_zero() => Ok(Self(Retention::For(kept))),
            _ => Err(serde::de::Error::custom(format!(
                "{text:?} is no retention; write \"45d\" or \"forever\""
            ))),
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(tag = "policy", rename_all = "lowercase", deny_unknown_fields)]
enum RetryTable {
    None,
    Fixed {
        #[serde(deserialize_with = "some_duration")]
        delay: Duration,
        attempts: NonZeroU32,
    },
    Exponential {
        #[serde(deserialize_with = "some_duration")]
        base: Duration,
        #[serde(deserialize_with = "some_duration")]
        cap: Duration,
        attempts: NonZeroU32,
    },
}

impl From<RetryTable> for RetryPolicy {
    fn from(table: RetryTable) -> Self {
        match table {
            RetryTable::None => Self::none(),
            RetryTable::Fixed { delay, attempts } => Self::fixed(delay, attempts.get()),
            RetryTable::Exponential { base, cap, attempts } => {
                Self::exponential(base, cap, attempts.get())
            }
        }
    }
}

fn some_duration<'de, D: Deserializer<'de>>(input: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(input)?;
    humantime::parse_duration(&text).map_err(|_| {
        serde::de::Error::custom(format!(
            "{text:?} is no duration; write \"10s\", \"15m\" or \"45d\""
        ))
    })
}

fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    some_duration(input).map(Some)
}

/// A table. Anything else may be the secret itself, which no error may show.
fn secret<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SecretTable>, D::Error> {
    match toml::Value::deserialize(input)? {
        toml::Value::Table(table) => match table.try_into() {
            Ok(secret) => Ok(Some(secret)),
            Err(error) => Err(serde::de::Error::custom(error.message())),
        },
        _ => Err(serde::de::Error::custom(
            "a secret is not written here; say where it is kept: { header = \"Authorization\", env \
             = \"VARIABLE\" }, or ssm, or secretsmanager",
        )),
    }
}

/// Reads the file and makes its jobs, or names every fault.
pub(super) fn load(path: &Path, env: Env<'_>) -> Result<Router, Faults> {
    let mut faults = Faults::new(path);
    match fs::read_to_string(path) {
        Ok(source) => parse(&source, env, &mut faults),
        Err(error) => {
            faults.add(format!("cannot be read: {error}; set ONLYONCE_JOBS to the jobs file"));
            None
        }
    }
    .filter(|_| faults.is_empty())
    .ok_or(faults)
}

fn parse(source: &str, env: Env<'_>, faults: &mut Faults) -> Option<Router> {
    let file: JobsFile = match toml::from_str(source) {
        Ok(file) => file,
        Err(error) => {
            let place = error.span().unwrap_or(0..0);
            faults.add_at(source, place, error.message());
            return None;
        }
    };
    if file.job.is_empty() {
        faults.add("no job is declared; add a [job.\"name\"] table with effect and guarantee");
    }
    let rules = file.message.rules(|name| file.job.contains_key(name), source, faults);
    let mut router = Router::new().messages(rules);
    for (name, table) in file.job {
        let place = table.span();
        match job(&name, table.into_inner(), &file.defaults, env) {
            Ok(job) => router = router.with(job),
            Err(wrong) => {
                for (field, text) in wrong {
                    let place = field_in(source, &place, field);
                    faults.add_at(source, place, format!("job {name:?}: {text}"));
                }
            }
        }
    }
    Some(router)
}

/// Where a field stands in the table that begins at `table`; the table's own place if it is not
/// there.
fn field_in(source: &str, table: &Range<usize>, field: &str) -> Range<usize> {
    let mut at = table.start;
    let lines = source.get(at..).unwrap_or_default().split_inclusive('\n');
    for (n, line) in lines.enumerate() {
        if n > 0 && line.starts_with('[') {
            break;
        }
        if line.split('=').next().is_some_and(|name| name.trim() == field) {
            return at..at + line.len();
        }
        at += line.len();
    }
    table.clone()
}

fn job(
    name: &str,
    table: JobTable,
    defaults: &Defaults,
    env: Env<'_>,
) -> Result<Job, Vec<FieldFault>> {
    let retry = table.retry.or(defaults.retry).map(RetryPolicy::from).unwrap_or_default();
    let retention = table.retention.or(defaults.retention).map_or_else(Retention::default, |r| r.0);
    let mut wrong = Vec::new();
    if let (Some(window), Retention::For(kept)) = (table.key_window, retention)
        && kept < window
    {
        let text = format!(
            "retention {} is shorter than key_window {}: the record would be forgotten while the \
             provider still knows the key; make it longer",
            humantime::format_duration(kept),
            humantime::format_duration(window)
        );
        wrong.push(("key_window", text));
    }
    let job = match table.effect_job(name, env) {
        Ok(job) => table.compared(job.retry(retry).retention(retention)),
        Err(more) => {
            wrong.extend(more);
            return Err(wrong);
        }
    };
    match job {
        Ok(job) if wrong.is_empty() => Ok(job),
        Ok(_) => Err(wrong),
        Err(more) => {
            wrong.push(("fingerprint", more));
            Err(wrong)
        }
    }
}

#[cfg(test)]
#[path = "jobs_file_tests.rs"]
mod tests;
