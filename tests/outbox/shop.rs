//! A shop whose orders tell of themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::local::{Drained, LocalQueue, Poller, QueueSettings};
use onlyonce::relay::{Relay, Swept};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::store::{Outbox, Store};
use onlyonce::{Context, HandlerError, Job, RetryPolicy, Router, Worker};
use serde::{Deserialize, Serialize};

/// What a job is asked to do.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Order {
    pub id: String,
    /// How its own job ends, after it has staged its events.
    #[serde(default)]
    pub fails: bool,
    /// How often its event's job fails before it does not.
    #[serde(default)]
    pub event_fails: u32,
    /// What its event is in order with; its own key if none is given.
    #[serde(default)]
    pub customer: Option<String>,
}

#[derive(Default)]
pub struct Seen {
    /// Orders whose event's job has ended well, with the key it had.
    pub told: Vec<(String, String)>,
    tries: HashMap<String, u32>,
}

pub struct Shop {
    pub store: Arc<dyn Store>,
    pub outbox: Arc<dyn Outbox>,
    pub queue: LocalQueue,
    pub worker: Worker,
    pub seen: Arc<Mutex<Seen>>,
}

impl Shop {
    pub fn new(store: Arc<dyn Store>) -> Self {
        let queue = LocalQueue::new(QueueSettings::default(), Arc::new(SystemClock));
        let seen = Arc::<Mutex<Seen>>::default();
        let worker = Worker::builder(store.clone()).build(jobs(&seen)).unwrap();
        let outbox = store.clone().outbox().unwrap();
        Self { store, outbox, queue, worker, seen }
    }

    pub fn relay(&self) -> Relay {
        Relay::of(&self.worker, Arc::new(self.queue.clone())).unwrap()
    }

    pub async fn relayed(&self) -> Swept {
        let hard = SystemClock.now() + Duration::from_secs(20);
        self.relay().once(hard).await.unwrap()
    }

    pub fn order(&self, order: &Order) {
        self.queue.send("order.place", &order.id, serde_json::to_string(order).unwrap());
    }

    /// Places an order, in a millisecond of its own: ids tell no more apart.
    pub async fn placed(&self, order: &Order) {
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(2)).await;
        self.order(order);
        self.drained().await;
    }

    pub async fn drained(&self) -> Drained {
        Poller::default().drain(&self.queue, &self.worker).await
    }

    /// The orders told of, in the order in which they were.
    pub fn told(&self) -> Vec<String> {
        self.seen.lock().unwrap().told.iter().map(|(order, _)| order.clone()).collect()
    }
}

pub fn jobs(seen: &Arc<Mutex<Seen>>) -> Router {
    let tell = {
        let seen = seen.clone();
        move |order: Order, cx: Context| {
            let seen = seen.clone();
            async move {
                let mut seen = seen.lock().unwrap();
                let tries = seen.tries.entry(order.id.clone()).or_default();
                *tries += 1;
                if *tries <= order.event_fails {
                    return Err(HandlerError::retryable("nobody answers"));
                }
                seen.told.push((order.id, cx.key().as_str().to_owned()));
                Ok(())
            }
        }
    };
    let soon = RetryPolicy::fixed(Duration::from_millis(10), 3);
    Router::new()
        .job("order.place", place)
        .with(Job::new("order.placed", tell).retry(soon))
        .with(Job::new("reindex", reindex).retry(RetryPolicy::none()))
        .job("unclear", unclear)
        .with(Job::new("order.fused", place).fused())
}

async fn place(order: Order, cx: Context) -> Result<String, HandlerError> {
    let id = match &order.customer {
        Some(customer) => cx.outbox_for(customer, "order.placed", &order).await?,
        None => cx.outbox("order.placed", &order).await?,
    };
    if order.fails {
        return Err(HandlerError::terminal("out of stock"));
    }
    Ok(id.as_str().to_owned())
}

async fn reindex(order: Order, _: Context) -> Result<(), HandlerError> {
    if order.fails { Err(HandlerError::terminal("no such index")) } else { Ok(()) }
}

/// Ends as unknown: nobody can say what became of its effect.
async fn unclear(_: Order, cx: Context) -> Result<(), HandlerError> {
    cx.effect("letter")
        .at_most_once(async || Err::<(), _>(HandlerError::retryable("no answer")))
        .await
}
