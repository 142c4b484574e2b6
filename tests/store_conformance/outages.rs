//! A store's server is killed again and again, while many commits are on their way to it. Nothing runs
//! without its claim, and all that is staged lands once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::error::Error;
use onlyonce::local::{Drained, LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::{ConditionalWrite, IdempotencyKey, RecordId, RetryPolicy, Status};
use onlyonce::store::{Commit, Overlay, StagedWrite, Store};
use onlyonce::{Context, EffectKey, HandlerError, Job, Router, Worker};
use tokio::sync::watch;

use crate::outage::Server;

/// What a job of this key stages.
pub type Staging = fn(&str) -> Vec<StagedWrite>;

const PAYMENTS: usize = 120;
const RESERVATIONS: usize = 60;
/// How often the server goes down, each time after so many effects more.
const KILLS: usize = 3;
const BETWEEN: usize = 30;

/// Runs messages of both kinds, each sent twice, while the server is killed three times; answers the
/// keys that are done.
pub async fn all_is_done_once(server: &mut impl Server, staging: Staging) -> Vec<String> {
    let store = server.store();
    let watched = Arc::new(Watched { store: store.clone(), failed: watch::Sender::new(0) });
    let provider = Arc::new(Provider::default());
    let retry = RetryPolicy::fixed(Duration::from_millis(200), 50);
    let pay = {
        let provider = provider.clone();
        move |_: (), cx: Context| pay(provider.clone(), staging, cx)
    };
    let reserve = move |_: (), cx: Context| async move {
        stage(&cx, staging).await?;
        Ok::<_, HandlerError>(())
    };
    let jobs = Router::new()
        .with(Job::new("pay", pay).retry(retry))
        .with(Job::new("reserve", reserve).retry(retry).fused());
    let worker = Worker::builder(watched.clone()).skew(Duration::from_millis(500));
    let worker = worker.build(jobs).unwrap();

    let visibility = Duration::from_secs(1);
    let settings = QueueSettings { visibility, ..QueueSettings::default() };
    let queue = LocalQueue::new(settings, worker.shared_clock());
    let keys = |job: &'static str, count| (0..count).map(move |n| (job, format!("{job}:{n}")));
    let all: Vec<_> = keys("pay", PAYMENTS).chain(keys("reserve", RESERVATIONS)).collect();
    for (job, key) in all.iter().chain(&all) {
        queue.send(job, key, "null");
    }

    // A short invocation: what a dying claim has locked is soon free.
    let poller = Poller { timeout: Duration::from_secs(3), ..Poller::default() };
    let outages = async {
        for kill in 1..=KILLS {
            provider.reached(kill * BETWEEN).await;
            tokio::task::block_in_place(|| server.kill());
            provider.down.send_replace(kill);
            let at_first = *watched.failed.borrow();
            // Until those that ran have given up and others have tried in vain: so many calls of the
            // forty that run at once are more than each sends of one write.
            watched.failed.subscribe().wait_for(|failed| *failed >= at_first + 200).await.unwrap();
            tokio::task::block_in_place(|| server.restart());
        }
    };
    let (drained, ()) = tokio::join!(poller.drain(&queue, &worker), outages);

    let Drained { deleted, dead, .. } = drained;
    assert_eq!((deleted, dead), (2 * all.len() as u64, 0), "each is acknowledged, none given up");
    for (job, key) in &all {
        let id = RecordId::new("default", job, &IdempotencyKey::new(key.as_str()).unwrap());
        let record = store.load(&id).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Completed, "{key}");
        // Nothing ran without a claim that is on the disk.
        let ran = provider.runs(key);
        assert!(record.attempt as usize >= ran, "{key}: {ran} runs, {} claims", record.attempt);
    }
    provider.each_key_is_one(PAYMENTS);
    let requests = provider.requests.load(Ordering::SeqCst);
    assert!(requests >= PAYMENTS + KILLS, "each outage has parted an effect from its record");
    println!(
        "{KILLS} outages, {} failed calls, {requests} requests under {PAYMENTS} keys",
        *watched.failed.borrow(),
    );
    all.into_iter().map(|(_, key)| key).collect()
}

async fn pay(
    provider: Arc<Provider>,
    staging: Staging,
    cx: Context,
) -> Result<String, HandlerError> {
    let key = cx.key().as_str().to_owned();
    provider.began(&key);
    let send =
        async |effect: EffectKey| Ok::<_, HandlerError>(provider.charge(&key, &effect).await);
    let charge = cx.effect("charge").keyed(send).await?;
    stage(&cx, staging).await?;
    Ok(charge)
}

async fn stage(cx: &Context, staging: Staging) -> Result<(), HandlerError> {
    for write in staging(cx.key().as_str()) {
        cx.stage(write).await?;
    }
    Ok(())
}

/// Stands for a provider that honours keys.
#[derive(Default)]
struct Provider {
    /// By the job's key: how often it ran, and under which keys it was asked for.
    seen: Mutex<HashMap<String, (usize, Vec<String>)>>,
    requests: AtomicUsize,
    effects: watch::Sender<usize>,
    /// How often the server went down.
    down: watch::Sender<usize>,
}

impl Provider {
    fn began(&self, key: &str) {
        self.seen.lock().unwrap().entry(key.to_owned()).or_default().0 += 1;
    }

    fn runs(&self, key: &str) -> usize {
        self.seen.lock().unwrap().get(key).map_or(0, |(runs, _)| *runs)
    }

    async fn charge(&self, key: &str, effect: &EffectKey) -> String {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let is_new = {
            let mut seen = self.seen.lock().unwrap();
            let (_, under) = seen.entry(key.to_owned()).or_default();
            let is_new = !under.iter().any(|known| known == effect.as_str());
            if is_new {
                under.push(effect.as_str().to_owned());
            }
            is_new
        };
        if is_new {
            let mut done = 0;
            self.effects.send_modify(|count| {
                *count += 1;
                done = *count;
            });
            // This one is done, and not recorded, when the server goes down.
            if done % BETWEEN == 0 && done / BETWEEN <= KILLS {
                self.down.subscribe().wait_for(|down| *down >= done / BETWEEN).await.unwrap();
            }
        }
        format!("ch_{effect}")
    }

    async fn reached(&self, effects: usize) {
        self.effects.subscribe().wait_for(|count| *count >= effects).await.unwrap();
    }

    fn each_key_is_one(&self, keys: usize) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.len(), keys);
        for (key, (_, under)) in seen.iter() {
            assert_eq!(under.len(), 1, "{key} was asked for under {under:?}");
        }
    }
}

/// The store, and how often it did not answer.
struct Watched {
    store: Arc<dyn Store>,
    failed: watch::Sender<usize>,
}

#[async_trait]
impl Overlay for Watched {
    fn under(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let commit = self.store.commit(write, staged).await;
        if let Err(error) = &commit {
            assert!(error.is_retryable(), "an outage passes: {error}");
            self.failed.send_modify(|count| *count += 1);
        }
        commit
    }
}
