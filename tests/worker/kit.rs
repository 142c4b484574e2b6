//! A worker in a test's hand: its store, its clock, what its jobs saw, and a queue that remembers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::context::Context;
use onlyonce::error::{Error, HandlerError};
use onlyonce::front::{
    ATTRIBUTE_JOB, ATTRIBUTE_KEY, Attribute, Delay, Mark, Message, Placed, Queue, run_batch,
};
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{
    ClaimId, ClaimRequest, IdempotencyKey, Record, RecordId, Retention, RetryPolicy, Timestamp,
};
use onlyonce::runtime::Clock;
use onlyonce::service::{Deadline, Delivery, Outcome, Worker};
use onlyonce::store::{MemoryStore, Store};
use onlyonce::test_util::{Fault, FaultStore, SeededEntropy, VirtualClock};
use serde_json::Value;

pub const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);
pub const SECOND: Duration = Duration::from_secs(1);

/// How often a job ran.
#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub fn one_more(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

pub struct Kit {
    pub worker: Worker,
    pub store: Arc<FaultStore>,
    pub clock: Arc<VirtualClock>,
    pub runs: Runs,
    pub queue: Remembers,
}

impl Kit {
    /// A worker with the jobs of [`jobs`], on a store whose commits go wrong by `script`.
    pub fn new(script: impl IntoIterator<Item = Fault>) -> Self {
        Self::with(script, |router, _| router)
    }

    /// The same, with the jobs that `more` adds.
    pub fn with(
        script: impl IntoIterator<Item = Fault>,
        more: impl FnOnce(Router, &Runs) -> Router,
    ) -> Self {
        let runs = Runs::default();
        let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new()), script));
        let clock = Arc::new(VirtualClock::new(START));
        let worker = Worker::builder(store.clone())
            .clock(clock.clone())
            .entropy(Arc::new(SeededEntropy::new(0, 0.5)))
            .concurrency(4)
            .build(more(jobs(&runs), &runs))
            .unwrap();
        Self { worker, store, clock, runs, queue: Remembers::default() }
    }

    /// Runs one message with a minute's time.
    pub async fn handle(&self, delivery: Delivery) -> Outcome {
        self.handle_within(delivery, SECOND * 60).await
    }

    pub async fn handle_within(&self, delivery: Delivery, time: Duration) -> Outcome {
        let now = self.clock.now();
        self.worker.handle(delivery, Deadline::new(now, now + time)).await
    }

    /// Runs one message with half a day's time, its claim renewed for `lease` at a time.
    pub async fn handle_renewing(&self, delivery: Delivery, lease: Duration) -> Outcome {
        let now = self.clock.now();
        let deadline = Deadline::new(now, now + SECOND * 43_200).renewing(lease);
        self.worker.handle(delivery, deadline).await
    }

    /// Runs a batch within `time` and answers the ids that must come again.
    pub async fn batch(&self, messages: &[Message], time: Duration) -> Vec<String> {
        let now = self.clock.now();
        run_batch(&self.worker, &self.queue, messages, Deadline::new(now, now + time)).await
    }

    pub async fn record(&self, job: &str, key: &str) -> Option<Record> {
        self.store.load(&id(job, key)).await.unwrap()
    }

    pub async fn wait(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }
}

/// The jobs most tests use; each counts its runs.
///
/// - `echo` answers its payload,
/// - `explode` panics,
/// - `refuse` fails for good, `stumble` retryably (three attempts, ten seconds apart),
/// - `slow` takes `ms` of its payload.
pub fn jobs(runs: &Runs) -> Router {
    let [echo, explode, refuse, stumble, slow] = std::array::from_fn(|_| runs.clone());
    let retry = RetryPolicy::fixed(SECOND * 10, 3);
    Router::new()
        .job("echo", move |payload: Value, _: Context| {
            let runs = echo.clone();
            async move {
                runs.one_more();
                Ok::<_, HandlerError>(payload)
            }
        })
        .job("explode", move |_: Value, _: Context| {
            let runs = explode.clone();
            async move {
                runs.one_more();
                if runs.count() > 0 {
                    panic!("a bug in one job");
                }
                Ok::<_, HandlerError>(())
            }
        })
        .job("refuse", move |_: Value, _: Context| {
            let runs = refuse.clone();
            async move {
                runs.one_more();
                Err::<(), _>(HandlerError::terminal("a declined card"))
            }
        })
        .with(
            Job::new("stumble", move |_: Value, _: Context| {
                let runs = stumble.clone();
                async move {
                    runs.one_more();
                    Err::<(), _>(HandlerError::retryable("a bad gateway"))
                }
            })
            .retry(retry),
        )
        .with(
            Job::new("slow", move |payload: Value, cx: Context| {
                let runs = slow.clone();
                async move {
                    runs.one_more();
                    let ms = payload["ms"].as_u64().unwrap_or_default();
                    pause(&cx, Duration::from_millis(ms)).await;
                    Ok::<_, HandlerError>(ms)
                }
            })
            .retry(retry),
        )
}

/// Takes time, by the worker's clock.
pub async fn pause(cx: &Context, time: Duration) {
    VirtualClock::new(cx.now()).sleep_until(cx.now() + time).await;
}

pub fn id(job: &str, key: &str) -> RecordId {
    RecordId::new("default", job, &IdempotencyKey::new(key).unwrap())
}

pub fn delivery(job: &str, key: &str, body: &str) -> Delivery {
    Delivery {
        job: job.to_owned(),
        key: IdempotencyKey::new(key).unwrap(),
        body: body.to_owned(),
        message_id: Some(format!("m-{key}")),
        enqueued_at: Some(START),
        unique: None,
    }
}

/// What a first attempt at `key` asks for at `now`, with ten seconds' time.
pub fn claim_of(job: &str, key: &str, now: Timestamp) -> ClaimRequest {
    ClaimRequest {
        id: id(job, key),
        namespace: "default".to_owned(),
        job: job.to_owned(),
        key: IdempotencyKey::new(key).unwrap(),
        fingerprint: None,
        claim_id: ClaimId::new("another worker"),
        lease_until: now + SECOND * 10,
        skew: SECOND * 5,
        retry: RetryPolicy::default(),
        retention: Retention::default(),
        enqueued_at: Some(now),
        message_id: None,
    }
}

pub fn message(id: &str, job: &str, key: &str, body: &str) -> Message {
    let mut message = Message {
        id: id.to_owned(),
        receipt: Some(format!("receipt of {id}")),
        body: Some(body.to_owned()),
        sent_at: Some(START),
        source_arn: Some("arn:aws:sqs:us-east-1:1:orders".to_owned()),
        ..Message::default()
    };
    for (name, value) in [(ATTRIBUTE_JOB, job), (ATTRIBUTE_KEY, key)] {
        if !value.is_empty() {
            message.attributes.insert(name.to_owned(), Attribute::text(value));
        }
    }
    message
}

pub fn in_group(group: &str, message: Message) -> Message {
    Message {
        group: Some(group.to_owned()),
        source_arn: Some("arn:aws:sqs:us-east-1:1:orders.fifo".to_owned()),
        ..message
    }
}

/// A queue that remembers what it was asked for. It has a quarantine unless told otherwise.
#[derive(Default)]
pub struct Remembers {
    pub quarantined: Mutex<Vec<(String, Mark)>>,
    pub delays: Mutex<Vec<(String, u32)>>,
    pub no_quarantine: bool,
}

impl Remembers {
    /// The causes in quarantine, by message id.
    pub fn causes(&self) -> Vec<(String, String)> {
        let quarantined = self.quarantined.lock().unwrap();
        quarantined.iter().map(|(id, mark)| (id.clone(), mark.cause.clone())).collect()
    }

    pub fn delay_of(&self, id: &str) -> Option<u32> {
        let delays = self.delays.lock().unwrap();
        delays.iter().find(|(message, _)| message == id).map(|(_, seconds)| *seconds)
    }
}

#[async_trait]
impl Queue for Remembers {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        if self.no_quarantine {
            return Ok(Placed::Left("there is none"));
        }
        self.quarantined.lock().unwrap().push((message.id.clone(), mark.clone()));
        Ok(Placed::Sent)
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        let asked = delays.into_iter().map(|delay| (delay.message.id.clone(), delay.seconds));
        self.delays.lock().unwrap().extend(asked);
    }
}
