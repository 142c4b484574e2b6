//! `jobs.toml`: jobs that need no Rust.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::effect::{self, At, Common, FieldFault, Fields, Wrong};
use super::fault::Faults;
use super::fingerprint::FingerprintText;
use super::message::MessageTable;
use crate::handler::{Job, Router};
use crate::protocol::{Retention, RetryPolicy};

/// Looks a variable of the environment up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Everything but the jobs, whose fields depend on their effects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsFile {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    message: MessageTable,
    // Taken out before; here to be named among the fields there are.
    #[serde(rename = "job", default)]
    _job: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defaults {
    retention: Option<RetentionText>,
    retry: Option<RetryTable>,
}

/// What every job has; the rest of its table is its effect's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobTable {
    effect: Option<String>,
    guarantee: Option<String>,
    retention: Option<RetentionText>,
    retry: Option<RetryTable>,
    #[serde(default, deserialize_with = "duration")]
    timeout: Option<Duration>,
    fingerprint: Option<FingerprintText>,
}

pub(super) const OF_EVERY_JOB: [&str; 6] =
    ["effect", "guarantee", "retention", "retry", "timeout", "fingerprint"];

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

pub(super) fn duration<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    some_duration(input).map(Some)
}

/// Reads the file and makes its jobs, or names every fault.
pub(super) fn load(path: &Path, env: Env<'_>) -> Result<Router, Faults> {
    let mut faults = Faults::new(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    match fs::read_to_string(path) {
        Ok(source) => parse(&source, folder, env, &mut faults),
        Err(error) => {
            faults.add(format!("cannot be read: {error}; set ONLYONCE_JOBS to the jobs file"));
            None
        }
    }
    .filter(|_| faults.is_empty())
    .ok_or(faults)
}

fn parse(source: &str, folder: &Path, env: Env<'_>, faults: &mut Faults) -> Option<Router> {
    let (file, jobs) = match read(source) {
        Ok(read) => read,
        Err(error) => {
            let place = error.span().unwrap_or(0..0);
            faults.add_at(source, place, error.message());
            return None;
        }
    };
    if jobs.is_empty() {
        faults.add("no job is declared; add a [job.\"name\"] table with effect and guarantee");
    }
    let rules = file.message.rules(|name| jobs.contains_key(name), source, faults);
    let mut router = Router::new().messages(rules);
    for (name, table) in jobs {
        let (name, place) = (name.into_inner(), table.span());
        let DeValue::Table(table) = table.into_inner() else {
            faults.add_at(source, place, format!("job {name:?} is no table; write [job.{name:?}]"));
            continue;
        };
        let places: BTreeMap<String, _> =
            table.keys().map(|field| (field.get_ref().to_string(), field.span())).collect();
        match job(&name, Spanned::new(place.clone(), table), &file.defaults, folder, env) {
            Ok(job) => router = router.with(job),
            Err(wrong) => {
                for FieldFault { at, text } in wrong.0 {
                    let place = match at {
                        At::Field(field) => places.get(field).unwrap_or(&place).clone(),
                        At::Place(place) => place,
                    };
                    faults.add_at(source, place, format!("job {name:?}: {text}"));
                }
            }
        }
    }
    Some(router)
}

/// The file, and its jobs by name.
fn read(source: &str) -> Result<(JobsFile, DeTable<'_>), toml::de::Error> {
    let mut file = DeTable::parse(source)?;
    let jobs = match file.get_mut().remove("job") {
        None => DeTable::new(),
        Some(jobs) => {
            let place = jobs.span();
            match jobs.into_inner() {
                DeValue::Table(jobs) => jobs,
                other => {
                    // No table: serde says what it is instead.
                    let other = Spanned::new(place, other);
                    BTreeMap::<String, IgnoredAny>::deserialize(ValueDeserializer::from(other))?;
                    DeTable::new()
                }
            }
        }
    };
    Ok((JobsFile::deserialize(toml::de::Deserializer::from(file))?, jobs))
}

fn job(
    name: &str,
    mut table: Spanned<DeTable<'_>>,
    defaults: &Defaults,
    folder: &Path,
    env: Env<'_>,
) -> Result<Job, Wrong> {
    let mut of_every_job = Spanned::new(table.span(), DeTable::new());
    for field in OF_EVERY_JOB {
        if let Some((field, value)) = table.get_mut().remove_entry(field) {
            of_every_job.get_mut().insert(field, value);
        }
    }
    let of_every_job = JobTable::deserialize(toml::de::Deserializer::from(of_every_job));
    let JobTable { effect, guarantee, retention, retry, timeout, fingerprint } =
        of_every_job.map_err(Wrong::unreadable)?;
    let Some(effect) = effect.as_deref() else {
        let text = format!("no effect is named; write effect = one of {}", effect::known());
        return Err(Wrong::one("effect", text));
    };
    let retry = retry.or(defaults.retry).map(RetryPolicy::from).unwrap_or_default();
    let retention = retention.or(defaults.retention).map_or_else(Retention::default, |r| r.0);
    let guarantee = guarantee.as_deref();
    let common = Common { name, effect, guarantee, timeout, retention, env, folder };
    let mut job = effect::job(Fields(table), &common)?.retry(retry).retention(retention);
    job.declared.effect = Some(effect.to_owned());
    job.declared.guarantee = guarantee.map(str::to_owned);
    match fingerprint {
        Some(fingerprint) => {
            fingerprint.applied_to(job).map_err(|text| Wrong::one("fingerprint", text))
        }
        None => Ok(job),
    }
}

/// What is wrong with a jobs file, where two secrets are known.
#[cfg(any(test, fuzzing))]
pub(super) fn faults(source: &str) -> String {
    let mut faults = Faults::new(Path::new("jobs.toml"));
    let env = |name: &str| match name {
        "TOKEN" => Some("s3cret".to_owned()),
        "LOGIN" => Some("ada:s3cret".to_owned()),
        _ => None,
    };
    parse(source, Path::new(""), &env, &mut faults);
    faults.to_string()
}

#[cfg(test)]
#[path = "jobs_file_tests.rs"]
mod tests;
