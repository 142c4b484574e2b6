//! The operator's verbs on records that workers have left behind, over every store.

use std::any::Any;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce::config::Settings;
use onlyonce::ops::instant;
use onlyonce::protocol::{
    Claim, ClaimId, ClaimRequest, Fingerprint, Held, IdempotencyKey, Output, RecordId, Retention,
    RetryPolicy, Timestamp, claim, complete,
};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::sdk;
use onlyonce::service::{Deadline, Delivery, Ending, SKEW};
use onlyonce::store::{Commit, Store};
use onlyonce::test_util::VirtualClock;
use onlyonce::{Context, HandlerError, Job, Router, Worker};
use serde_json::Value;

use crate::queue::Queue;
use crate::server::Postgres;
use crate::{Folder, onlyonce, redis, run};

pub const LONG_AGO: Duration = Duration::from_secs(600);

/// A store, as the command and as a worker open it.
pub struct Bench {
    pub folder: Folder,
    env: String,
    store: Arc<dyn Store>,
    /// How often the effect was begun.
    runs: Arc<AtomicUsize>,
    /// Ends with it.
    _server: Option<Box<dyn Any + Send>>,
}

impl Bench {
    pub async fn on(kind: &str) -> Self {
        let folder = Folder::new();
        let mut server: Option<Box<dyn Any + Send>> = None;
        let env = match kind {
            "sqlite" => format!("sqlite:{}", folder.0.join("records.db").display()),
            "dynamodb" => format!("dynamodb://verbs-{:016x}", fastrand::Rng::new().u64(..)),
            "redis" => {
                let (started, url) = redis::plain(&folder);
                server = Some(Box::new(started));
                url
            }
            _ => {
                let started = Postgres::start();
                let url = started.url();
                server = Some(Box::new(started));
                url
            }
        };
        let (code, said) = run(onlyonce(&folder.0).env("ONLYONCE_STORE", &env), &["setup"]);
        assert_eq!(code, Some(0), "{said}");
        let named = |name: &str| (name == "ONLYONCE_STORE").then(|| env.clone());
        let store = Settings::read(&named).unwrap().store.open(sdk::load()).await.unwrap();
        Self { folder, env, store, runs: Arc::default(), _server: server }
    }

    pub fn command(&self) -> Command {
        let mut command = onlyonce(&self.folder.0);
        command.env("ONLYONCE_STORE", &self.env);
        command
    }

    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        run(&mut self.command(), words)
    }

    /// A worker whose clock is behind: what it leaves was left then. Its job charges at most once,
    /// and its first answer never comes.
    fn worker(&self, ago: Duration) -> Worker {
        let runs = self.runs.clone();
        let pay = move |_: Value, cx: Context| {
            let runs = runs.clone();
            async move {
                let charge = async || match runs.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(HandlerError::retryable("no answer")),
                    n => Ok(n),
                };
                cx.effect("charge").at_most_once(charge).await
            }
        };
        let decline =
            async |_: Value, _: Context| Err::<(), _>(HandlerError::terminal("no such customer"));
        let jobs = Router::new().with(Job::new("pay", pay)).job("decline", decline);
        Worker::builder(self.store.clone())
            .clock(Arc::new(VirtualClock::new(SystemClock.now() - ago)))
            .build(jobs)
            .unwrap()
    }

    pub async fn deliver(&self, ago: Duration, job: &str, key: &str, body: &str) -> Ending {
        let worker = self.worker(ago);
        let delivery = Delivery {
            job: job.to_owned(),
            key: IdempotencyKey::new(key).unwrap(),
            body: body.to_owned(),
            message_id: None,
            // Older than anything that happened.
            enqueued_at: Some(Timestamp::from_millis(1)),
            unique: None,
        };
        let now = worker.clock().now();
        worker.handle(delivery, Deadline::new(now, now + Duration::from_secs(20))).await.ending
    }

    /// Leaves a job whose charge nobody knows the outcome of.
    pub async fn unknown(&self, key: &str) {
        self.runs.store(0, Ordering::SeqCst);
        let ending = self.deliver(LONG_AGO, "pay", key, "{}").await;
        assert!(matches!(ending, Ending::Unknown(_)), "{ending:?}");
    }

    /// Claims a key and dies.
    pub async fn dead(&self, key: &str, lease_until: Timestamp) -> Held {
        let key = IdempotencyKey::new(key).unwrap();
        let request = ClaimRequest {
            id: RecordId::new("default", "pay", &key),
            namespace: "default".to_owned(),
            job: "pay".to_owned(),
            key,
            fingerprint: Some(Fingerprint::of(b"{}")),
            claim_id: ClaimId::new("zombie"),
            lease_until,
            skew: SKEW,
            retry: RetryPolicy::default(),
            retention: Retention::default(),
            enqueued_at: None,
            message_id: None,
        };
        let Claim::Take { write, held } = claim(None, &request, SystemClock.now()) else {
            panic!("it is free")
        };
        assert_eq!(self.store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        *held
    }
}

async fn an_unknown_job_is_resolved_both_ways(kind: &str) {
    let bench = Bench::on(kind).await;
    bench.unknown("a").await;
    let (code, said) = bench.run(&["release", "pay", "a"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("it is unknown; this is for a claimed one"), "{said}");
    let (code, said) = bench.run(&["forget", "pay", "a", "--yes"]);
    assert!(code == Some(1) && said.contains("resolve it first"), "{said}");

    let (code, said) = bench.run(&["resolve", "pay", "a", "--not-done"]);
    let released = "pay a: released, and due; bring its message back: onlyonce dlq replay\n";
    assert_eq!((code, said.as_str()), (Some(0), released));
    let again = bench.deliver(Duration::ZERO, "pay", "a", "{}").await;
    assert!(matches!(&again, Ending::Completed(Output::Stored(it)) if it == "1"), "{again:?}");
    assert_eq!(bench.runs.load(Ordering::SeqCst), 2, "it ran again");

    bench.unknown("b").await;
    let arguments = ["resolve", "pay", "b", "--done", "--effect", "charge", "--result", "7"];
    assert_eq!(bench.run(&arguments), (Some(0), released.replace(" a:", " b:")));
    let again = bench.deliver(Duration::ZERO, "pay", "b", "{}").await;
    assert!(matches!(&again, Ending::Completed(Output::Stored(it)) if it == "7"), "{again:?}");

    bench.unknown("c").await;
    let arguments = ["--json", "resolve", "pay", "c", "--done", "--output", "{\"by\":\"hand\"}"];
    let (code, said) = bench.run(&arguments);
    let record: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, record["status"].as_str()), (Some(0), Some("completed")));
    let again = bench.deliver(Duration::ZERO, "pay", "c", "{}").await;
    assert!(
        matches!(&again, Ending::Replayed(Output::Stored(it)) if it == "{\"by\":\"hand\"}"),
        "{again:?}"
    );
    assert_eq!(bench.runs.load(Ordering::SeqCst), 1, "neither ran again");
}

async fn what_is_forgotten_runs_anew_and_a_late_write_loses(kind: &str) {
    let bench = Bench::on(kind).await;
    let zombie = bench.dead("k", SystemClock.now() - LONG_AGO).await;
    let (code, said) = bench.run(&["forget", "pay", "k"]);
    assert!(code == Some(2) && said.contains("give --yes"), "{said}");
    let (code, said) = bench.run(&["forget", "pay", "k", "--yes"]);
    let forgotten = "pay k: forgotten; its next message runs as if it were the first\n";
    assert_eq!((code, said.as_str()), (Some(0), forgotten));
    assert_eq!(bench.run(&["--json", "list", "released"]), (Some(0), String::new()));
    let (_, said) = bench.run(&["inspect", "pay", "k"]);
    assert!(
        said.ends_with("  forgotten, token 2; its next message runs as if it were the first\n")
    );
    let late = async || {
        let (write, _) = complete(&zombie, Output::Omitted, Retention::Forever, SystemClock.now());
        bench.store.commit(&write, &[]).await.unwrap()
    };
    assert!(matches!(late().await, Commit::Conflict(_)));
    bench.runs.store(1, Ordering::SeqCst);
    let anew = bench.deliver(Duration::ZERO, "pay", "k", "{\"another\":1}").await;
    assert!(matches!(&anew, Ending::Completed(Output::Stored(it)) if it == "1"), "{anew:?}");
    assert!(matches!(late().await, Commit::Conflict(_)));
    let record = bench.store.load(&zombie.id).await.unwrap().unwrap();
    assert!(record.token > zombie.token.next(), "its token goes on: {:?}", record.token);
}

#[tokio::test]
async fn an_unknown_job_is_resolved_both_ways_on_sqlite() {
    an_unknown_job_is_resolved_both_ways("sqlite").await;
}

#[tokio::test]
async fn an_unknown_job_is_resolved_both_ways_on_dynamodb() {
    an_unknown_job_is_resolved_both_ways("dynamodb").await;
}

#[tokio::test]
async fn an_unknown_job_is_resolved_both_ways_on_redis() {
    an_unknown_job_is_resolved_both_ways("redis").await;
}

#[tokio::test]
async fn an_unknown_job_is_resolved_both_ways_on_postgres() {
    an_unknown_job_is_resolved_both_ways("postgres").await;
}

#[tokio::test]
async fn what_is_forgotten_runs_anew_and_a_late_write_loses_on_sqlite() {
    what_is_forgotten_runs_anew_and_a_late_write_loses("sqlite").await;
}

#[tokio::test]
async fn what_is_forgotten_runs_anew_and_a_late_write_loses_on_dynamodb() {
    what_is_forgotten_runs_anew_and_a_late_write_loses("dynamodb").await;
}

#[tokio::test]
async fn what_is_forgotten_runs_anew_and_a_late_write_loses_on_redis() {
    what_is_forgotten_runs_anew_and_a_late_write_loses("redis").await;
}

#[tokio::test]
async fn what_is_forgotten_runs_anew_and_a_late_write_loses_on_postgres() {
    what_is_forgotten_runs_anew_and_a_late_write_loses("postgres").await;
}

#[tokio::test]
async fn nothing_is_released_under_a_live_lease_and_the_instant_is_said() {
    let bench = Bench::on("sqlite").await;
    let lease = SystemClock.now() + LONG_AGO;
    let held = bench.dead("k", lease).await;
    let over = lease + SKEW;
    for words in [&["release", "pay", "k"][..], &["forget", "pay", "k", "--yes"]] {
        let refusal = format!(
            "record {} is left as it is: an attempt may be running under its lease; that is over \
             at {}",
            held.id,
            instant(over)
        );
        let (code, said) = bench.run(words);
        assert_eq!((code, said), (Some(1), format!("onlyonce: {refusal}\n")));
        let (code, said) = run(bench.command().arg("--json"), words);
        let told: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((code, told["until"].as_u64()), (Some(1), Some(over.millis())));
    }
    bench.dead("over", SystemClock.now() - LONG_AGO).await;
    let (code, said) = bench.run(&["release", "pay", "over"]);
    let due = "pay over: released, and due; it runs when the queue brings its message\n";
    assert_eq!((code, said.as_str()), (Some(0), due));
    bench.runs.store(1, Ordering::SeqCst);
    let ending = bench.deliver(Duration::ZERO, "pay", "over", "{}").await;
    assert!(matches!(ending, Ending::Completed(_)), "{ending:?}");
}

#[tokio::test]
async fn nothing_is_resolved_while_a_request_may_be_under_way() {
    let bench = Bench::on("sqlite").await;
    assert!(matches!(bench.deliver(Duration::ZERO, "pay", "k", "{}").await, Ending::Unknown(_)));
    for found in [&["--not-done"][..], &["--done"]] {
        let (code, said) = run(bench.command().args(["resolve", "pay", "k"]), found);
        assert_eq!(code, Some(1));
        assert!(said.contains("still be under way; that is over at 20"), "{said}");
    }
    let (code, _) = bench.run(&["resolve", "pay", "k"]);
    assert_eq!(code, Some(2), "done or not done must be said");
    let (code, _) = bench.run(&["resolve", "pay", "k", "--done", "--not-done"]);
    assert_eq!(code, Some(2));
    let (code, said) = bench.run(&["resolve", "pay", "nobody", "--done"]);
    assert!(code == Some(1) && said.contains("there is no record"), "{said}");
}

#[tokio::test]
async fn a_story_is_told_in_the_order_in_which_it_happened() {
    let bench = Bench::on("sqlite").await;
    bench.unknown("k").await;
    let (code, said) = bench.run(&["inspect", "pay", "k"]);
    let story: Vec<&str> = said.lines().filter(|line| line.starts_with("20")).collect();
    let told: Vec<&str> = story.iter().map(|line| line.split_once("  ").unwrap().1).collect();
    let expected = [
        "first recorded",
        "effect charge: may have happened; its outcome is not recorded",
        "unknown, attempt 1, token 1, its message on the way to the dead-letter queue: no answer",
    ];
    assert_eq!((code, told.as_slice()), (Some(0), &expected[..]), "{said}");
}

async fn a_failed_job_is_replayed_with_its_own_payload_alone(kind: &str) {
    let bench = Bench::on(kind).await;
    let queue = Queue::new().await;
    let ending = bench.deliver(LONG_AGO, "decline", "k", "{\"n\": 1}").await;
    assert!(matches!(ending, Ending::Failed(_)), "{ending:?}");
    let replay = |body: &str| {
        let file = bench.folder.file("body.json", body);
        let mut command = bench.command();
        command.env("ONLYONCE_QUEUE_URL", &queue.url);
        run(&mut command, &["replay", "decline", "k", "--body", &file])
    };
    let (code, said) = replay("{\"n\":2}");
    assert!(code == Some(1) && said.contains("bound to another payload"), "{said}");
    assert_eq!(queue.len().await, 0);
    let sent = (Some(0), "decline k: sent to the queue, and due\n".to_owned());
    assert_eq!(replay("{\"n\":1}"), sent);
    // As after an interruption between the two.
    assert_eq!(replay("{\"n\":1}"), sent);
    assert_eq!(queue.len().await, 2);
    assert_eq!(queue.served("decline").await, [serde_json::json!({ "n": 1 })]);
    let ending = bench.deliver(Duration::ZERO, "decline", "k", "{\"n\": 1}").await;
    assert!(matches!(ending, Ending::Failed(_)), "it ran again: {ending:?}");
}

#[tokio::test]
async fn a_failed_job_is_replayed_with_its_own_payload_alone_on_sqlite() {
    a_failed_job_is_replayed_with_its_own_payload_alone("sqlite").await;
}

#[tokio::test]
async fn a_failed_job_is_replayed_with_its_own_payload_alone_on_redis() {
    a_failed_job_is_replayed_with_its_own_payload_alone("redis").await;
}
