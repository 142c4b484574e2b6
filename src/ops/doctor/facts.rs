//! What is known of a deployment, wherever it was read.

use std::time::Duration;

use super::known::Known;
use super::policy::{Policies, last};
use crate::store::redis::RedisKeeping;

/// One worker behind one queue.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// What it is called in the report.
    pub name: String,
    pub queue: Known<Queue>,
    /// Where the queue's redrive policy leads.
    pub dlq: Known<DeadLetters>,
    /// Absent where the worker polls.
    pub source: Known<Source>,
    /// Absent where the worker is no Lambda function.
    pub function: Known<Function>,
    /// `ONLYONCE_DLQ_URL`, as the name of its queue.
    pub quarantine: Known<Place>,
    pub store: Known<StoreFacts>,
    /// What the function may do.
    pub role: Known<Policies>,
    pub jobs: Known<Jobs>,
    /// Other workers on the same store and namespace that run other code: who they are.
    pub sharers: Known<Vec<String>>,
}

impl Deployment {
    /// Of which nothing is known.
    pub fn unknown(name: impl Into<String>, why: &str) -> Self {
        Self {
            name: name.into(),
            queue: Known::untold(why),
            dlq: Known::untold(why),
            source: Known::untold(why),
            function: Known::untold(why),
            quarantine: Known::untold(why),
            store: Known::untold(why),
            role: Known::untold(why),
            jobs: Known::untold(why),
            sharers: Known::untold(why),
        }
    }
}

/// A queue or a table, as policies and settings name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub name: String,
    /// Its ARN, if that is known in full.
    pub arn: Option<String>,
}

impl Place {
    /// A KMS key by its ARN, id or alias; none if it is AWS's own, which needs no permission.
    pub fn key(text: &str) -> Option<Self> {
        let name = last(text);
        if name.starts_with("alias/aws/") {
            return None;
        }
        let is_plain = !["key/", "alias/", "${"].iter().any(|it| name.starts_with(it));
        let name = if is_plain { format!("key/{name}") } else { name.to_owned() };
        let has_arn = text.starts_with("arn:") || text.starts_with("${");
        Some(Self { name, arn: has_arn.then(|| text.to_owned()) })
    }

    /// Its name for people: of what a template leaves to CloudFormation, the template's.
    pub fn shown(&self) -> &str {
        let inner = self.name.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        inner.unwrap_or(&self.name)
    }
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub place: Place,
    pub is_fifo: Known<bool>,
    pub visibility: Known<Duration>,
    pub retention: Known<Duration>,
    pub redrive: Known<Redrive>,
    /// A KMS key of one's own that it is encrypted with.
    pub key: Known<Place>,
}

#[derive(Clone, Debug)]
pub struct Redrive {
    pub target: Place,
    pub max_receive: Known<u64>,
}

/// Absent where the redrive policy leads to a queue that is not there.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    pub is_fifo: Known<bool>,
    pub retention: Known<Duration>,
}

/// A Lambda event source of a queue.
#[derive(Clone, Debug)]
pub struct Source {
    pub batch: Known<u64>,
    pub window: Known<Duration>,
    pub reports_failures: Known<bool>,
    pub maximum_concurrency: Known<u64>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub timeout: Known<Duration>,
    /// Absent where none is reserved.
    pub reserved: Known<u64>,
    /// What its environment says that no worker starts with.
    pub fault: Option<String>,
}

#[derive(Clone, Debug)]
pub enum StoreFacts {
    /// Absent where there is no such table.
    DynamoDb(Place, Known<Table>),
    Redis(Known<RedisKeeping>),
    /// Postgres or SQLite: its scheme, and what is wrong with its schema.
    Sql(&'static str, Known<String>),
    Memory,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub key: Known<Vec<Key>>,
    pub parked: Known<Index>,
    /// The attribute that its TTL is on; absent while it is off.
    pub ttl: Known<String>,
    pub is_restorable: Known<bool>,
    /// Its other Regions.
    pub replicas: Known<Vec<String>>,
}

/// A part of a key: attribute, `HASH` or `RANGE`, `S`, `N` or `B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub String, pub String, pub String);

impl Key {
    pub fn new(attribute: &str, role: &str, kind: &str) -> Self {
        Self(attribute.to_owned(), role.to_owned(), kind.to_owned())
    }
}

#[derive(Clone, Debug)]
pub struct Index {
    pub key: Known<Vec<Key>>,
    /// `ALL`, `KEYS_ONLY` or `INCLUDE`.
    pub projection: Known<String>,
}

/// What a jobs file says, or a program that was given its jobs.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    pub jobs: Vec<JobFacts>,
    /// The attribute that the key is in.
    pub key_attribute: String,
    /// What it is derived by.
    pub key_expression: Option<String>,
    /// Whether that sees a whole EventBridge event.
    pub sees_event: bool,
}

#[derive(Clone, Debug, Default)]
pub struct JobFacts {
    pub name: String,
    /// Absent for jobs in Rust.
    pub effect: Option<String>,
    pub guarantee: Option<String>,
    pub key_window: Option<Duration>,
    pub attempts: u32,
    /// From the first attempt's begin to the last one's end.
    pub horizon: Duration,
    pub timeout: Option<Duration>,
    /// None is for ever.
    pub retention: Option<Duration>,
}
