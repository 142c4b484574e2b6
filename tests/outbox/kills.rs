//! The relay is killed before and after each call that it makes: nothing is lost, nothing overtakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::front::{Delay, Mark, Message, Placed, Queue};
use onlyonce::outbox::UniqueMessage;
use onlyonce::protocol::{
    ConditionalWrite, IdempotencyKey, OutboxEntry, Record, RecordId, Status, Timestamp,
};
use onlyonce::relay::Relay;
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::store::{
    Capabilities, Commit, Cursor, MemoryStore, Outbox, Page, StagedWrite, Store, Take, Taken, Walk,
};
use onlyonce::{Error, Worker, outbox};
use tokio::sync::Notify;

use crate::shop::{Order, Shop, jobs};
use crate::suite::Later;

/// Where a relay dies: at its `at`th call, before it or after it.
struct Death {
    at: usize,
    is_after: bool,
    calls: AtomicUsize,
    come: Notify,
}

impl Death {
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        if self.calls.fetch_add(1, Ordering::Relaxed) != self.at {
            return call.await;
        }
        if self.is_after {
            call.await;
        }
        self.come.notify_one();
        std::future::pending().await
    }
}

struct Gated<T: ?Sized>(Arc<T>, Arc<Death>);

#[async_trait]
impl Store for Gated<dyn Store> {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.1.call(self.0.load(id)).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.1.call(self.0.commit(write, staged)).await
    }

    async fn scan(&self, of: Status, after: Option<Cursor>, most: usize) -> Result<Page, Error> {
        self.0.scan(of, after, most).await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.0.walk(after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.0.accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        None
    }
}

#[async_trait]
impl Outbox for Gated<dyn Outbox> {
    async fn take(&self, take: Take) -> Result<Taken, Error> {
        self.1.call(self.0.take(take)).await
    }

    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.1.call(self.0.sent(entry, at)).await
    }

    async fn put_back(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.1.call(self.0.put_back(entry, at)).await
    }

    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error> {
        self.1.call(self.0.is_unsent(entry)).await
    }

    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error> {
        self.0.clear(row, nonce).await
    }

    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error> {
        self.0.add_unique(entry, now).await
    }
}

#[async_trait]
impl Queue for Gated<dyn Queue> {
    async fn quarantine(&self, message: &Message, mark: &Mark) -> Result<Placed, Error> {
        self.1.call(self.0.quarantine(message, mark)).await
    }

    async fn delay(&self, delays: Vec<Delay<'_>>) {
        self.0.delay(delays).await;
    }

    async fn send(&self, message: &Message) -> Result<Placed, Error> {
        self.1.call(self.0.send(message)).await
    }
}

/// Looks until nothing is left, and waits for what is due later.
async fn to_the_end(relay: &Relay, clock: &dyn Clock) {
    loop {
        let swept = relay.once(clock.now() + Duration::from_secs(20)).await.unwrap();
        if swept.left == 0 && swept.sent == 0 {
            return;
        }
        clock.sleep_until(clock.now() + Duration::from_millis(10)).await;
    }
}

/// Three events of ada's; one of bob's that fails for good, and one behind it; a unique message.
async fn filled() -> Shop {
    let shop = Shop::new(Arc::new(MemoryStore::new()));
    let entry = |customer: &str, n: usize, event_fails| {
        let id = format!("{customer}-{n}");
        let order = Order { id: id.clone(), event_fails, ..Order::default() };
        let mut entry = outbox::entry("order.placed", &order).unwrap();
        entry.order_key = customer.to_owned();
        entry.event_id = IdempotencyKey::new(id).unwrap();
        StagedWrite::from(entry.row(shop.store.capabilities().outbox.as_deref().unwrap()).unwrap())
    };
    let mut staged: Vec<_> = (0..3).map(|n| entry("ada", n, 0)).collect();
    staged.extend([entry("bob", 0, 99), entry("bob", 1, 0)]);
    let write = crate::unique::any_write("import");
    assert_eq!(shop.store.commit(&write, &staged).await.unwrap(), Commit::Applied);
    let key = IdempotencyKey::new("monday").unwrap();
    let message = UniqueMessage::new("reindex", "index-7", key, &Order::default()).unwrap();
    assert!(message.send(shop.outbox.as_ref()).await.unwrap());
    shop
}

/// Answers whether it was killed at all.
async fn killed(at: usize, is_after: bool) -> bool {
    let shop = filled().await;
    let death = Arc::new(Death { at, is_after, calls: AtomicUsize::new(0), come: Notify::new() });
    let store = Gated(shop.store.clone(), death.clone());
    let worker = Worker::builder(store).build(jobs(&shop.seen)).unwrap();
    let queue: Arc<dyn Queue> = Arc::new(shop.queue.clone());
    let queue = Arc::new(Gated(queue, death.clone()));
    let outbox = Arc::new(Gated(shop.outbox.clone(), death.clone()));
    let relay = Relay::new(worker, outbox, queue);
    let is_killed = tokio::select! {
        () = to_the_end(&relay, &SystemClock) => false,
        () = death.come.notified() => true,
    };
    drop(relay);

    // Its claims are free by then.
    let later = Arc::new(Later(Duration::from_secs(60)));
    let worker = Worker::builder(shop.store.clone()).clock(later.clone());
    let worker = worker.build(jobs(&shop.seen)).unwrap();
    let next = Relay::of(&worker, Arc::new(shop.queue.clone())).unwrap();
    to_the_end(&next, later.as_ref()).await;

    let case = format!("call {at}, {}", if is_after { "after it" } else { "before it" });
    let mut told = shop.told();
    // What was under way ran again.
    let runs = told.len();
    told.dedup();
    told.sort();
    assert_eq!(told, ["ada-0", "ada-1", "ada-2", "bob-1"], "{case}");
    assert!(runs <= 5, "{case}: {runs} runs");
    let mut ada = shop.told();
    ada.retain(|id| id.starts_with("ada"));
    assert!(ada.is_sorted(), "{case}: {ada:?}");
    let dead = shop.queue.dead();
    assert!(
        dead.iter().any(|message| message.body.as_deref().unwrap().contains("bob-0")),
        "{case}"
    );
    assert!(shop.queue.len() == 1 || (is_killed && shop.queue.len() == 2), "{case}");
    shop.drained().await;
    let key = IdempotencyKey::new("tuesday").unwrap();
    let message = UniqueMessage::new("reindex", "index-7", key, &Order::default()).unwrap();
    assert!(message.send(shop.outbox.as_ref()).await.unwrap(), "{case}");
    is_killed
}

#[tokio::test]
async fn wherever_it_dies_the_next_one_sends_the_rest_in_order() {
    for is_after in [false, true] {
        let mut at = 0;
        while killed(at, is_after).await {
            at += 1;
        }
        assert!(at > 25, "killed at {at} calls only");
    }
}
