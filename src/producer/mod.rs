#![doc = include_str!("../docs/producers.md")]

mod batch;
mod command;
mod deliver;
mod failure;
mod parcel;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use futures_util::StreamExt;
use futures_util::stream;
use tracing::warn;

use crate::protocol::{KeyAdvice, RecordId};
use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::sdk;

use batch::{Placed, pack};
use deliver::Route;

pub use crate::protocol::{ATTRIBUTE_TRACE, InvalidTraceParent, TraceParent};
pub use command::Command;
pub use failure::{SendError, SendErrorKind};
#[cfg(not(feature = "cli"))]
use parcel::Parcel;
#[cfg(feature = "cli")]
pub(crate) use parcel::Parcel;

/// Requests under way at once, on a standard queue.
const AT_ONCE: usize = 4;

/// A command that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The queue's id of it: for people, never for identity.
    pub message_id: String,
    /// The digest that stands for its key, in the logs as well. Every command has one.
    pub id: Option<RecordId>,
    /// Its place in a FIFO queue. Of a duplicate inside five minutes: that of the first.
    pub sequence_number: Option<String>,
}

/// Sends commands to one queue; made once and shared.
///
/// Whatever it cannot confirm may be in the queue: send it again, under the same key. Dropping a
/// future of it leaves the same doubt, and the same remedy.
pub struct Producer {
    client: Client,
    queue_url: String,
    key_attribute: String,
    job_attribute: String,
    namespace: String,
    limit: Duration,
    is_strict: bool,
    /// What was warned of before.
    warned: Mutex<HashSet<KeyAdvice>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Producer {
    /// A producer for this queue, in the region that its URL names. It needs `sqs:SendMessage`, and
    /// `kms:GenerateDataKey` and `kms:Decrypt` where a key of your own encrypts the queue.
    pub fn new(sdk: &SdkConfig, queue_url: impl Into<String>) -> Self {
        let queue_url = queue_url.into();
        // It tries again by itself, entry by entry.
        let settings = aws_sdk_sqs::config::Builder::from(sdk);
        let mut settings = settings.retry_config(RetryConfig::disabled());
        if let Some(region) = sdk::region_of(&queue_url) {
            settings.set_region(Some(Region::new(region.to_owned())));
        }
        Self {
            client: Client::from_conf(settings.build()),
            queue_url,
            key_attribute: ATTRIBUTE_KEY.to_owned(),
            job_attribute: ATTRIBUTE_JOB.to_owned(),
            namespace: "default".to_owned(),
            limit: Duration::from_secs(10),
            is_strict: false,
            warned: Mutex::default(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(OsEntropy),
        }
    }

    /// How long a request with up to ten messages may be tried; 10 s by default.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Names the attributes that hold the key and the job, as the worker's `[message]` table does.
    #[must_use]
    pub fn attributes(mut self, key: impl Into<String>, job: impl Into<String>) -> Self {
        self.key_attribute = key.into();
        self.job_attribute = job.into();
        self
    }

    /// The worker's namespace, so that digests here are those in its logs; `default` by default.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Refuses keys that look random, instead of warning once of each kind ([`KeyAdvice`]).
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Sends one command. It is in the queue if this answers `Ok`, and may be if the error says
    /// [`Unconfirmed`](SendErrorKind::Unconfirmed).
    pub async fn send(&self, command: Command) -> Result<Sent, SendError> {
        let parcel = self.parcel(command)?;
        let unheard = SendError::new(SendErrorKind::Unconfirmed, &parcel, "no answer");
        let answer = self.send_parcels(vec![Ok(parcel)], &mut HashSet::new()).await.pop();
        answer.unwrap_or(Err(unheard))
    }

    /// Sends commands, ten and at most 1 MiB in a request; answers for each, in the order given.
    /// One that fails costs no other, but for a FIFO queue's later messages of its group, which
    /// must not overtake it.
    pub async fn send_all(
        &self,
        commands: impl IntoIterator<Item = Command>,
    ) -> Vec<Result<Sent, SendError>> {
        let parcels = commands.into_iter().map(|command| self.parcel(command)).collect();
        self.send_parcels(parcels, &mut HashSet::new()).await
    }

    /// The same for what is written already. `behind` are the groups of a FIFO queue of which a
    /// message was not sent.
    pub(crate) async fn send_parcels(
        &self,
        parcels: Vec<Result<Parcel, SendError>>,
        behind: &mut HashSet<String>,
    ) -> Vec<Result<Sent, SendError>> {
        let is_fifo = is_fifo(&self.queue_url);
        let mut outcomes = BTreeMap::new();
        let mut fit = Vec::new();
        for (at, parcel) in parcels.into_iter().enumerate() {
            let checked = parcel.and_then(|parcel| match parcel.check(is_fifo) {
                Err(why) => Err(SendError::new(SendErrorKind::Faulty, &parcel, why)),
                Ok(()) if is_fifo && parcel.is_of(behind) => Err(SendError::behind(&parcel)),
                Ok(()) => Ok(parcel),
            });
            match checked {
                Ok(parcel) => fit.push((at, parcel)),
                Err(error) => {
                    behind.extend(error.group().map(str::to_owned));
                    outcomes.insert(at, Err(error));
                }
            }
        }
        let route = self.route();
        if is_fifo {
            let mut stopped = HashSet::new();
            for batch in pack(fit, true) {
                let (held, batch): (Vec<_>, Vec<_>) =
                    batch.into_iter().partition(|(_, parcel)| parcel.is_of(&stopped));
                outcomes.extend(held.iter().map(|(at, held)| (*at, Err(SendError::behind(held)))));
                let answers = answered(&route, batch).await;
                let errors = answers.iter().filter_map(|(_, answer)| answer.as_ref().err());
                stopped.extend(errors.filter_map(|error| error.group().map(str::to_owned)));
                outcomes.extend(answers);
            }
            behind.extend(stopped);
        } else {
            let requests = pack(fit, false).into_iter().map(|batch| answered(&route, batch));
            let answers: Vec<_> = stream::iter(requests).buffer_unordered(AT_ONCE).collect().await;
            outcomes.extend(answers.into_iter().flatten());
        }
        outcomes.into_values().collect()
    }

    fn parcel(&self, command: Command) -> Result<Parcel, SendError> {
        let Command { job, key, body, group, delay, trace } = command;
        let mut attributes = vec![
            (self.job_attribute.clone(), job.clone()),
            (self.key_attribute.clone(), key.as_str().to_owned()),
        ];
        attributes.extend(trace.map(|trace| (ATTRIBUTE_TRACE.to_owned(), trace.to_string())));
        let id = RecordId::new(&self.namespace, &job, &key);
        let delay =
            delay.map(|delay| delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0)));
        let parcel = Parcel { id: Some(id), job: Some(job), body, attributes, group, delay };
        match KeyAdvice::of(&key) {
            Some(advice) if self.is_strict => {
                Err(SendError::new(SendErrorKind::Faulty, &parcel, advice.to_string()))
            }
            Some(advice) => {
                self.warn(advice, &parcel);
                Ok(parcel)
            }
            None => Ok(parcel),
        }
    }

    /// Once of each kind: a producer that does it does it with every command.
    fn warn(&self, advice: KeyAdvice, parcel: &Parcel) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(advice) {
            let (job, key) = (parcel.job.as_deref(), parcel.id.as_ref().map(RecordId::as_str));
            warn!(job, key, "{advice}");
        }
    }

    fn route(&self) -> Route<'_> {
        Route {
            client: &self.client,
            queue_url: &self.queue_url,
            limit: self.limit,
            clock: self.clock.as_ref(),
            entropy: self.entropy.as_ref(),
        }
    }
}

/// Delivers a batch, and answers by place in the caller's list.
async fn answered(route: &Route<'_>, batch: Vec<Placed>) -> Vec<(usize, Result<Sent, SendError>)> {
    // Each layer around a future may hold it again.
    let answers = Box::pin(route.deliver(&batch)).await;
    batch.into_iter().map(|(at, _)| at).zip(answers).collect()
}

/// Whether a queue is FIFO, which its name says.
pub(crate) fn is_fifo(queue_url: &str) -> bool {
    queue_url.ends_with(".fifo")
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("queue_url", &self.queue_url).finish_non_exhaustive()
    }
}
