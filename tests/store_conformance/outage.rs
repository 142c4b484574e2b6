//! A store's server is killed in the middle of a run, and comes back with what it had on the disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::front::answer;
use onlyonce::local::{Invocation, LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::{IdempotencyKey, RecordId, Status};
use onlyonce::runtime::SystemClock;
use onlyonce::store::Store;
use onlyonce::{Context, HandlerError, Job, Router, Worker};
use tokio::sync::{Semaphore, watch};

/// A server that can be killed.
pub trait Server: Send {
    /// A store on it, which finds it again by itself.
    fn store(&self) -> Arc<dyn Store>;

    /// By SIGKILL; returns once it is seen dead.
    fn kill(&mut self);

    /// On the same disk; returns once it takes connections.
    fn restart(&mut self);
}

/// Messages; those done before the server is killed; and those at work then.
const MESSAGES: usize = 24;
const DONE: usize = 6;
const AT_WORK: usize = 8;

/// What has happened so far.
#[derive(Default)]
struct Seen {
    /// Effects that were come to.
    begun: usize,
    /// Requests that went out, by key.
    requests: BTreeMap<String, usize>,
    /// Messages that an answer has reported as failed.
    failed: usize,
}

impl Seen {
    fn sent(&self) -> usize {
        self.requests.values().sum()
    }
}

/// Its requests wait at a gate.
struct Provider {
    seen: watch::Sender<Seen>,
    gate: Semaphore,
}

impl Provider {
    async fn charge(&self, key: String) -> Result<(), HandlerError> {
        self.seen.send_modify(|seen| seen.begun += 1);
        self.gate.acquire().await?.forget();
        self.seen.send_modify(|seen| *seen.requests.entry(key).or_default() += 1);
        Ok(())
    }

    async fn until(&self, what: &str, holds: impl FnMut(&Seen) -> bool) {
        let mut seen = self.seen.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(30), seen.wait_for(holds)).await;
        assert!(waited.is_ok(), "not {what} in time");
    }
}

/// Jobs fail closed while the server is away, and complete once it is back: each effect under its one
/// key, sent once, or twice where nobody could write down that it was.
pub async fn jobs_fail_closed_and_complete(mut server: impl Server) {
    let provider = Arc::new(Provider {
        seen: watch::Sender::new(Seen::default()),
        gate: Semaphore::new(DONE),
    });
    let charging = provider.clone();
    let charge = Job::new("charge", move |_: u64, cx: Context| {
        let provider = charging.clone();
        async move {
            cx.effect("charge").keyed(async |key| provider.charge(key.to_string()).await).await
        }
    });
    let store = server.store();
    let worker = Worker::builder(store.clone()).skew(Duration::from_secs(1));
    let worker = worker.build(Router::new().with(charge)).unwrap();
    let settings = QueueSettings {
        name: "outage".to_owned(),
        visibility: Duration::from_secs(5),
        max_receives: 100,
    };
    let queue = LocalQueue::new(settings, Arc::new(SystemClock));
    for n in 0..MESSAGES {
        queue.send("charge", &format!("order {n}"), n);
    }

    // One message an invocation: whoever is at work has a place of its own.
    let poller = Poller { batch: 1, concurrency: AT_WORK, timeout: Duration::from_secs(4) };
    let invoke = async |invocation: &Invocation| {
        let told = answer(&worker, &queue, &invocation.event, invocation.hard).await.ok()?;
        let told = serde_json::to_value(told).ok()?;
        let failed = told["batchItemFailures"].as_array().map_or(0, Vec::len);
        provider.seen.send_modify(|seen| seen.failed += failed);
        Some(told)
    };
    let outage = async {
        provider.until("at work", |seen| seen.begun == DONE + AT_WORK).await;
        assert_eq!(queue.len(), MESSAGES - DONE, "a place is free once its message is deleted");
        server.kill();

        // Those at work do what they have claimed, and cannot say so; nobody else begins.
        provider.gate.add_permits(Semaphore::MAX_PERMITS / 2);
        provider.until("failed", |seen| seen.failed >= MESSAGES - DONE).await;
        {
            let seen = provider.seen.borrow();
            assert_eq!((seen.begun, seen.sent()), (DONE + AT_WORK, DONE + AT_WORK));
        }
        assert_eq!(queue.len(), MESSAGES - DONE, "nothing is acknowledged without its record");
        server.restart();
    };
    let run = async { tokio::join!(poller.run(&queue, invoke), outage).0 };
    let drained = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it completes");

    assert_eq!((drained.deleted, drained.dead, queue.len()), (MESSAGES as u64, 0, 0));
    let seen = provider.seen.borrow();
    assert_eq!(seen.requests.len(), MESSAGES, "one key a message: {:?}", seen.requests);
    let twice = seen.requests.values().filter(|times| **times == 2).count();
    assert_eq!((twice, seen.sent()), (AT_WORK, MESSAGES + AT_WORK), "{:?}", seen.requests);
    for n in 0..MESSAGES {
        let key = IdempotencyKey::new(format!("order {n}")).unwrap();
        let record = store.load(&RecordId::new("default", "charge", &key)).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Completed);
    }
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_killed_in_the_middle_of_a_run() {
    jobs_fail_closed_and_complete(crate::redis_server::RedisServer::start()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_killed_in_the_middle_of_a_run() {
    jobs_fail_closed_and_complete(crate::postgres_server::Pulled::start().await).await;
}
