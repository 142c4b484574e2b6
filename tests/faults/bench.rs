//! A worker whose store is reached through the proxy, and what is true past it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use futures_util::future::join_all;
use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{IdempotencyKey, Record, RecordId, RetryPolicy, Status, Timestamp};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::sdk;
use onlyonce::service::{Deadline, Delivery, Disposition, Ending, Outcome, Worker};
use onlyonce::store::{Columns, DynamoStore, RowValue, RowWrite, Store};
use serde_json::{Value, json};

use crate::proxy::Proxy;

/// How many cups are on the shelf at first.
const CUPS: i64 = 10;
/// How long a lease may be outlived by clocks that differ.
const SKEW: Duration = Duration::from_secs(1);
/// What a delivery may take over its own time: the machine may be busy.
const LATE: Duration = Duration::from_secs(2);

pub struct Bench {
    pub proxy: Proxy,
    pub worker: Worker,
    pub clock: Arc<Ahead>,
    pub seen: Seen,
    /// Through the proxy.
    pub broken: SdkConfig,
    /// Past it.
    pub plain: SdkConfig,
    store: DynamoStore,
    shelf: String,
}

/// The keys that effects ran under, by job.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<(String, String)>>>);

impl Seen {
    fn add(&self, cx: &Context, key: impl ToString) {
        self.0.lock().unwrap().push((cx.id().to_string(), key.to_string()));
    }

    /// The keys under which the effect of this record ran.
    pub fn of(&self, id: &RecordId) -> Vec<String> {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|(of, _)| of == id.as_str()).map(|(_, key)| key.clone()).collect()
    }
}

/// The machine's clock, and what a test has put it ahead: leases need not be waited for.
#[derive(Default)]
pub struct Ahead(AtomicU64);

impl Ahead {
    pub fn leap_to(&self, at: Timestamp) {
        let ms = u64::try_from(at.remaining(self.now()).as_millis()).unwrap();
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, at: Timestamp) {
        SystemClock.sleep_until(SystemClock.now() + at.remaining(self.now())).await;
    }
}

impl Bench {
    /// Each write is a request of its own, whatever is ready with it.
    pub async fn new() -> Self {
        Self::with(DynamoStore::ungrouped).await
    }

    /// Writes that are ready together share a request.
    pub async fn grouped() -> Self {
        Self::with(|store| store).await
    }

    async fn with(how: impl FnOnce(DynamoStore) -> DynamoStore) -> Self {
        let proxy = Proxy::start();
        let plain = sdk::load().await;
        let broken = through(&proxy, &plain);
        let unique = format!("{:016x}", fastrand::Rng::new().u64(..));
        let (table, shelf) = (format!("faults-{unique}"), format!("shelf-{unique}"));
        let store = DynamoStore::new(&plain, &table);
        assert!(store.create_table(&SystemClock).await.unwrap());
        stock(&Client::new(&plain), &shelf).await;
        let (clock, seen) = (Arc::new(Ahead::default()), Seen::default());
        let worker = Worker::builder(how(DynamoStore::new(&broken, &table)))
            .clock(clock.clone())
            .skew(SKEW)
            .build(jobs(&seen, &shelf))
            .unwrap();
        Self { proxy, worker, clock, seen, broken, plain, store, shelf }
    }

    /// Delivers once, with `seconds` of time, and holds the worker to that.
    pub async fn deliver(&self, job: &str, key: &str, seconds: u64) -> Outcome {
        let (begun, time) = (Instant::now(), Duration::from_secs(seconds));
        let now = self.clock.now();
        let deadline = Deadline::new(now, now + time);
        let outcome =
            tokio::time::timeout(time + LATE, self.worker.handle(delivery(job, key), deadline));
        let outcome = outcome.await.expect("a worker answers by its deadline");
        assert!(begun.elapsed() < time + LATE, "late: {outcome:?}");
        outcome
    }

    /// Delivers once, with a claim that is renewed for four seconds at a time.
    pub async fn deliver_renewing(&self, job: &str, key: &str) -> Outcome {
        let now = self.clock.now();
        let deadline = Deadline::new(now, now + Duration::from_secs(60));
        let deadline = deadline.renewing(Duration::from_secs(4));
        self.worker.handle(delivery(job, key), deadline).await
    }

    /// Breaks what the cases name, and delivers them side by side with `seconds` of time each.
    /// Every fault must have struck.
    pub async fn deliver_broken(&self, cases: &[Case], seconds: u64) -> Vec<Outcome> {
        self.proxy.breaks(cases.iter().map(Case::rule).collect());
        let outcomes = cases.iter().map(|case| self.deliver(case.job, &case.key, seconds));
        let outcomes = join_all(outcomes).await;
        let struck = self.proxy.heals();
        for (case, struck) in cases.iter().zip(struck) {
            assert!(struck > 0, "nothing was broken: {case:?}");
        }
        outcomes
    }

    /// Wants each case done at its first delivery, once, though broken; and known as done after.
    pub async fn all_hold(&self, cases: &[Case]) {
        let outcomes = self.deliver_broken(cases, 20).await;
        for (case, outcome) in cases.iter().zip(outcomes) {
            let is_done = matches!(outcome.ending, Ending::Completed(_) | Ending::Replayed(_));
            assert!(is_done, "{case:?}: {outcome:?}");
            self.is_done_once(case.job, &case.key).await;
            assert_eq!(self.comes_again(case.job, &case.key).await, ["replayed"], "{case:?}");
            self.is_done_once(case.job, &case.key).await;
        }
    }

    /// Delivers again, as its queue would, until it is acknowledged; answers each ending's name.
    pub async fn comes_again(&self, job: &str, key: &str) -> Vec<&'static str> {
        let mut names = Vec::new();
        for _ in 0..6 {
            let outcome = self.deliver(job, key, 20).await;
            names.push(outcome.name());
            match outcome.disposition(self.clock.now()) {
                Disposition::Retry(Some(at)) => self.clock.leap_to(at),
                Disposition::Retry(None) => panic!("nothing is broken: {outcome:?}"),
                Disposition::Ack | Disposition::Quarantine { .. } => return names,
            }
        }
        panic!("{job} {key} is wedged: {names:?}");
    }

    /// Completed, its effect run once, and its cup taken once.
    pub async fn is_done_once(&self, job: &str, key: &str) {
        let record = self.record(job, key).await.expect("there is a record");
        assert_eq!(record.status.as_str(), "completed", "{job} {key}");
        let runs = self.seen.of(&id(job, key)).len();
        assert_eq!(runs, usize::from(has_effect(job)), "effects of {job} {key}");
        assert_eq!(self.taken(key).await, i64::from(takes_cup(job)), "cups of {job} {key}");
    }

    pub async fn status(&self, case: &Case) -> Option<Status> {
        self.record(case.job, &case.key).await.map(|record| record.status)
    }

    pub async fn record(&self, job: &str, key: &str) -> Option<Record> {
        self.store.load(&id(job, key)).await.unwrap()
    }

    /// How many cups the job under `key` has taken.
    pub async fn taken(&self, key: &str) -> i64 {
        let client = Client::new(&self.plain);
        let sku = AttributeValue::S(key.to_owned());
        let row = client.get_item().table_name(&self.shelf).key("sku", sku).consistent_read(true);
        let row = row.send().await.unwrap().item.unwrap_or_default();
        row.get("taken").map_or(0, |taken| taken.as_n().unwrap().parse().unwrap())
    }
}

/// The same settings, to the proxy. Made anew, as those that were loaded always look into the
/// environment for the endpoint.
fn through(proxy: &Proxy, plain: &SdkConfig) -> SdkConfig {
    let mut broken = SdkConfig::builder().endpoint_url(proxy.url());
    broken
        .set_behavior_version(plain.behavior_version())
        .set_credentials_provider(plain.credentials_provider())
        .set_http_client(plain.http_client())
        .set_identity_cache(plain.identity_cache())
        .set_region(plain.region().cloned())
        .set_retry_config(plain.retry_config().cloned())
        .set_sleep_impl(plain.sleep_impl())
        .set_time_source(plain.time_source())
        .set_timeout_config(plain.timeout_config().cloned());
    broken.build()
}

fn has_effect(job: &str) -> bool {
    job != "reserve"
}

fn takes_cup(job: &str) -> bool {
    matches!(job, "reserve" | "settle")
}

pub fn id(job: &str, key: &str) -> RecordId {
    RecordId::new("default", job, &IdempotencyKey::new(key).unwrap())
}

pub fn delivery(job: &str, key: &str) -> Delivery {
    Delivery {
        job: job.to_owned(),
        key: IdempotencyKey::new(key).unwrap(),
        body: json!(key).to_string(),
        message_id: Some(format!("m-{key}")),
        enqueued_at: Some(SystemClock.now()),
        unique: None,
    }
}

/// - `charge`: one keyed effect, so a claim and a completion, `PutItem` and `UpdateItem` where each is a
///   request of its own, as below;
/// - `letter`: one effect at most once, so an intent between them, another `UpdateItem`;
/// - `settle`: a keyed effect and a staged row, so the completion is a `TransactWriteItems`;
/// - `reserve`: fused, nothing but one `TransactWriteItems`;
/// - `long`: the effect of `charge`, and then seven seconds;
/// - `refuse`: fails for good; `stumble` retryably.
fn jobs(seen: &Seen, shelf: &str) -> Router {
    let retry = RetryPolicy::fixed(Duration::from_secs(1), 5);
    let [charge, letter, settle, long] = std::array::from_fn(|_| seen.clone());
    let [settled, reserved] = std::array::from_fn(|_| shelf.to_owned());
    let charge = Job::new("charge", move |_: Value, cx: Context| {
        let seen = charge.clone();
        async move { charged(&cx, &seen).await }
    });
    let long = Job::new("long", move |_: Value, cx: Context| {
        let seen = long.clone();
        async move {
            charged(&cx, &seen).await?;
            SystemClock.sleep_until(SystemClock.now() + Duration::from_secs(7)).await;
            Ok::<_, HandlerError>(())
        }
    });
    let letter = Job::new("letter", move |_: Value, cx: Context| {
        let seen = letter.clone();
        async move {
            cx.effect("letter")
                .at_most_once(async || {
                    seen.add(&cx, "letter");
                    Ok::<_, HandlerError>(1)
                })
                .await
        }
    });
    let settle = Job::new("settle", move |sku: String, cx: Context| {
        let (seen, shelf) = (settle.clone(), settled.clone());
        async move {
            charged(&cx, &seen).await?;
            cx.stage(take(&shelf, &sku)).await
        }
    });
    let reserve = Job::new("reserve", move |sku: String, cx: Context| {
        let shelf = reserved.clone();
        async move { cx.stage(take(&shelf, &sku)).await }
    });
    let refuse = Job::new("refuse", |_: Value, _: Context| async {
        Err::<(), _>(HandlerError::terminal("a declined card"))
    });
    let stumble = Job::new("stumble", |_: Value, _: Context| async {
        Err::<(), _>(HandlerError::retryable("a bad gateway"))
    });
    Router::new()
        .with(charge.retry(retry))
        .with(long.retry(retry))
        .with(letter.retry(retry))
        .with(settle.retry(retry))
        .with(reserve.retry(retry).fused())
        .with(refuse)
        .with(stumble.retry(retry))
}

async fn charged(cx: &Context, seen: &Seen) -> Result<u32, HandlerError> {
    cx.effect("charge")
        .keyed(async |key| {
            seen.add(cx, key);
            Ok::<_, HandlerError>(7)
        })
        .await
}

/// Takes a cup off the shelf, where each key has cups of its own.
fn take(shelf: &str, sku: &str) -> RowWrite {
    let add = BTreeMap::from([("taken".to_owned(), 1), ("left".to_owned(), -1)]);
    let floor = BTreeMap::from([("left".to_owned(), -CUPS)]);
    let key = Columns::from([("sku".to_owned(), RowValue::from(sku))]);
    RowWrite::Add { table: shelf.to_owned(), key, add, floor }
}

async fn stock(client: &Client, shelf: &str) {
    let sku = AttributeDefinition::builder().attribute_name("sku");
    let sku = sku.attribute_type(ScalarAttributeType::S).build().unwrap();
    let hash = KeySchemaElement::builder().attribute_name("sku").key_type(KeyType::Hash);
    let made = client
        .create_table()
        .table_name(shelf)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(sku)
        .key_schema(hash.build().unwrap());
    made.send().await.unwrap();
}

/// What is broken of one message's way.
#[derive(Clone, Debug)]
pub struct Case {
    pub job: &'static str,
    pub key: String,
    /// The requests, by their operation.
    pub operation: &'static str,
    /// How many of them: all, if not said.
    pub times: Option<u32>,
    /// What is done to them, as microburst has it.
    pub fault: Value,
}

impl Case {
    pub fn new(job: &'static str, operation: &'static str, times: u32, fault: &Value) -> Self {
        let key = format!("{job} {operation} {times} {fault}");
        Self { job, key, operation, times: Some(times), fault: fault.clone() }
    }

    /// For ever.
    pub fn endless(job: &'static str, operation: &'static str, fault: &Value) -> Self {
        Self { times: None, ..Self::new(job, operation, 0, fault) }
    }

    pub fn id(&self) -> RecordId {
        id(self.job, &self.key)
    }

    /// For this record's requests only.
    pub fn rule(&self) -> Value {
        let mine = format!("contains(to_string(@), '{}')", self.id());
        let mut rule = json!({"service": "dynamodb", "operation": self.operation, "body": mine});
        let fields = rule.as_object_mut().unwrap();
        fields.extend(self.fault.as_object().unwrap().clone());
        fields.extend(self.times.map(|times| ("times".to_owned(), json!(times))));
        rule
    }
}

/// Each write of each kind of job.
pub const WRITES: [(&str, &str); 6] = [
    ("charge", "PutItem"),
    ("charge", "UpdateItem"),
    ("letter", "UpdateItem"),
    ("settle", "PutItem"),
    ("settle", "TransactWriteItems"),
    ("reserve", "TransactWriteItems"),
];

/// Whether the worker says only what it knows: neither done, nor for good.
pub fn is_left_open(outcome: &Outcome) -> bool {
    matches!(outcome.ending, Ending::StoreError)
}
