//! What holds of every event.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::front::{Attribute, Message, run_batch};
use onlyonce::protocol::{IdempotencyKey, RecordId, Status, Timestamp};
use onlyonce::relay::Relay;
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::service::Deadline;
use onlyonce::store::{Capabilities, Commit, RowValue, RowWrite, StagedWrite, Store, Take};
use onlyonce::{Context, HandlerError, Job, Router, Worker, outbox, runtime};
use tokio::sync::mpsc;

use crate::shop::{Order, Shop};

fn order(id: &str) -> Order {
    Order { id: id.to_owned(), ..Order::default() }
}

/// Looks again and again until so many orders have been told of.
async fn until_told(shop: &Shop, orders: usize) {
    let give_up = SystemClock.now() + Duration::from_secs(20);
    while shop.told().len() < orders {
        assert!(SystemClock.now() < give_up, "told of {:?} alone", shop.told());
        if shop.relayed().await.sent == 0 {
            // What waits is due at a time of its own.
            SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(50)).await;
        }
    }
}

pub async fn a_completed_jobs_events_are_sent_once_under_their_ids(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    for n in 0..5 {
        shop.order(&order(&format!("order-{n}")));
        shop.order(&order(&format!("order-{n}")));
    }
    shop.order(&Order { fails: true, ..order("order-lost") });
    assert_eq!(shop.drained().await.dead, 1);
    assert!(shop.told().is_empty(), "nothing goes out by itself");

    let swept = shop.relayed().await;
    assert_eq!((swept.sent, swept.left), (5, 0));
    let again = shop.relayed().await;
    assert_eq!((again.sent, again.left), (0, 0));

    let mut told = shop.seen.lock().unwrap().told.clone();
    told.sort();
    for (n, (id, key)) in told.iter().enumerate() {
        assert_eq!(id, &format!("order-{n}"));
        let key_of = IdempotencyKey::new(id.as_str()).unwrap();
        let record = RecordId::new("default", "order.place", &key_of);
        let record = shop.store.load(&record).await.unwrap().unwrap();
        // What the job has answered is what the event's own job has as its key.
        assert!(format!("{:?}", record.output).contains(key.as_str()), "{key}");
    }
    assert_eq!(told.len(), 5);
}

pub async fn events_of_one_order_key_go_in_order_and_hold_up_no_other(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let of = |customer: &str, id: &str, event_fails| Order {
        customer: Some(customer.to_owned()),
        event_fails,
        ..order(id)
    };
    for order in [of("ada", "first", 1), of("ada", "second", 0), of("bob", "other", 0)] {
        shop.placed(&order).await;
    }
    let swept = shop.relayed().await;
    assert_eq!(swept.sent, 1, "the first must be tried again, and the second waits for it");
    assert_eq!(shop.told(), ["other"]);
    until_told(&shop, 3).await;
    assert_eq!(shop.told(), ["other", "first", "second"]);
}

pub async fn an_event_that_fails_for_good_is_quarantined_and_the_next_goes_on(
    store: Arc<dyn Store>,
) {
    let shop = Shop::new(store);
    for (id, event_fails) in [("first", 99), ("second", 0)] {
        shop.placed(&Order { customer: Some("ada".to_owned()), event_fails, ..order(id) }).await;
    }
    until_told(&shop, 1).await;
    assert_eq!(shop.told(), ["second"]);
    let dead = shop.queue.dead();
    assert_eq!(dead.len(), 1);
    assert!(dead[0].body.as_deref().unwrap().contains("first"));
    // Redriven to the queue it runs there, under the same key.
    assert_eq!(shop.queue.redrive(), 1);
    let failed = shop.drained().await;
    assert_eq!((failed.deleted, failed.dead), (1, 1));
    let swept = shop.relayed().await;
    assert_eq!((swept.sent, swept.left), (0, 0));
}

pub async fn relays_side_by_side_send_each_event_once(store: Arc<dyn Store>) {
    let shop = Arc::new(Shop::new(store));
    for n in 0..20 {
        let customer = Some(format!("customer-{}", n % 4));
        shop.placed(&Order { customer, ..order(&format!("order-{n:02}")) }).await;
    }
    let relays: Vec<_> = (0..4)
        .map(|_| {
            let shop = shop.clone();
            runtime::spawn(async move { until_told(&shop, 20).await })
        })
        .collect();
    for mut relay in relays {
        relay.join().await.unwrap();
    }
    let told = shop.told();
    assert_eq!(told.iter().collect::<HashSet<_>>().len(), told.len(), "{told:?}");
    for customer in 0..4 {
        let of = |id: &&String| id[6..].parse::<u32>().unwrap() % 4 == customer;
        let mine: Vec<_> = told.iter().filter(of).collect();
        assert!(mine.is_sorted(), "{mine:?}");
    }
}

pub async fn an_event_of_another_transaction_goes_the_same_way(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let entry = outbox::entry("order.placed", &order("imported")).unwrap();
    let Capabilities { outbox: Some(table), .. } = shop.store.capabilities() else {
        panic!("it has an outbox");
    };
    // Any transaction of this store: here that of a record of somebody else.
    let write = crate::unique::any_write("somebody-else");
    let staged = [StagedWrite::from(entry.row(&table).unwrap())];
    assert_eq!(shop.store.commit(&write, &staged).await.unwrap(), Commit::Applied);
    until_told(&shop, 1).await;
    let told = shop.seen.lock().unwrap().told.clone();
    assert_eq!(told, [("imported".to_owned(), entry.event_id.as_str().to_owned())]);
}

pub async fn an_event_that_was_sent_and_not_removed_is_known_by_its_id(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let entry = outbox::entry("order.placed", &order("twice")).unwrap();
    let Capabilities { outbox: Some(table), .. } = shop.store.capabilities() else {
        panic!("it has an outbox");
    };
    for crash in ["before-it", "after-it"] {
        let write = crate::unique::any_write(crash);
        let staged = [StagedWrite::from(entry.row(&table).unwrap())];
        assert_eq!(shop.store.commit(&write, &staged).await.unwrap(), Commit::Applied);
        let swept = shop.relayed().await;
        assert_eq!((swept.sent, swept.left), (1, 0));
    }
    assert_eq!(shop.told(), ["twice"]);
    let id = RecordId::new("default", "order.placed", &entry.event_id);
    assert_eq!(shop.store.load(&id).await.unwrap().unwrap().status, Status::Completed);
}

pub async fn an_event_that_waits_holds_up_all_behind_it_however_many(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let Capabilities { outbox: Some(table), .. } = shop.store.capabilities() else {
        panic!("it has an outbox");
    };
    // More than a look takes at once.
    for half in 0..2 {
        let mut staged = Vec::new();
        for n in half * 75..(half + 1) * 75 {
            let event_fails = u32::from(n == 0);
            let mut entry = outbox::entry(
                "order.placed",
                &Order { event_fails, ..order(&format!("order-{n:03}")) },
            )
            .unwrap();
            entry.order_key = "ada".to_owned();
            entry.event_id = IdempotencyKey::new(format!("event-{n:03}")).unwrap();
            staged.push(StagedWrite::from(entry.row(&table).unwrap()));
        }
        let write = crate::unique::any_write(&format!("import-{half}"));
        assert_eq!(shop.store.commit(&write, &staged).await.unwrap(), Commit::Applied);
    }
    let swept = shop.relayed().await;
    assert_eq!((swept.sent, shop.told().len()), (0, 0), "the first must be tried again");
    until_told(&shop, 150).await;
    assert!(shop.told().is_sorted(), "{:?}", shop.told());
}

pub async fn a_row_that_is_no_entry_keeps_no_other_from_being_sent(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let Capabilities { outbox: Some(table), .. } = shop.store.capabilities() else {
        panic!("it has an outbox");
    };
    let columns = |columns: &[(&str, RowValue)]| {
        columns.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    // As somebody's own program may write them, before all others: made before there was a time,
    // and without a body, which no quarantine takes.
    let foreign = |key: &str, body: &str, made_at| RowWrite::PutIfAbsent {
        table: table.clone(),
        key: columns(&[("order_key", key.into()), ("event_id", key.into())]),
        values: columns(&[
            ("event", "order.placed".into()),
            ("body", body.into()),
            ("created_at", RowValue::Integer(made_at)),
        ]),
    };
    let staged = [foreign("a", "{}", -1).into(), foreign("b", "", 1).into()];
    let write = crate::unique::any_write("foreign");
    assert_eq!(shop.store.commit(&write, &staged).await.unwrap(), Commit::Applied);
    shop.placed(&order("fine")).await;
    until_told(&shop, 1).await;
    let swept = shop.relayed().await;
    assert_eq!((swept.sent, swept.left, shop.queue.dead().len()), (0, 0, 0));
}

/// The machine's clock, and some seconds.
pub struct Later(pub Duration);

#[async_trait]
impl Clock for Later {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.0
    }

    async fn sleep_until(&self, at: Timestamp) {
        SystemClock.sleep_until(at - self.0).await;
    }
}

pub async fn what_a_dead_relay_had_taken_is_soon_sent_by_another(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    for id in ["first", "second"] {
        shop.placed(&Order { customer: Some("ada".to_owned()), ..order(id) }).await;
    }
    let (begun, mut in_the_middle) = mpsc::unbounded_channel();
    let hang = move |_: Order, _: Context| {
        begun.send(()).unwrap();
        std::future::pending::<Result<(), HandlerError>>()
    };
    let jobs = Router::new().with(Job::new("order.placed", hang).timeout(Duration::from_secs(2)));
    let worker = Worker::builder(shop.store.clone()).build(jobs).unwrap();
    let dying = Relay::of(&worker, Arc::new(shop.queue.clone())).unwrap();
    tokio::select! {
        swept = dying.once(SystemClock.now() + Duration::from_secs(60)) => panic!("{swept:?}"),
        _ = in_the_middle.recv() => {}
    }
    let swept = shop.relayed().await;
    assert_eq!(swept.sent, 0, "the dead one is believed alive");

    // The claim is free after two seconds and the clocks' margin.
    let later = Arc::new(Later(Duration::from_secs(11)));
    let jobs = crate::shop::jobs(&shop.seen);
    let worker = Worker::builder(shop.store.clone()).clock(later.clone()).build(jobs).unwrap();
    let relay = Relay::of(&worker, Arc::new(shop.queue.clone())).unwrap();
    let mut sent = 0;
    for _ in 0..2 {
        sent += relay.once(later.now() + Duration::from_secs(20)).await.unwrap().sent;
    }
    assert_eq!(sent, 2);
    assert_eq!(shop.told(), ["first", "second"]);
}

pub async fn an_entry_is_never_given_without_those_before_it(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    for id in ["first", "second", "third"] {
        shop.placed(&Order { customer: Some("ada".to_owned()), ..order(id) }).await;
    }
    let now = SystemClock.now() + Duration::from_secs(1);
    let taken = async |limit| {
        let until = now + Duration::from_secs(60);
        let take = Take { now, made_before: now, until, limit, after: None };
        let entries = shop.outbox.take(take).await.unwrap().entries;
        let name =
            |body: &str| ["first", "second", "third"].into_iter().find(|id| body.contains(id));
        entries.iter().map(|entry| name(&entry.body).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(taken(1).await, ["first"]);
    // Whoever looks now is given all of them in order, or, where a row says who has it, none.
    let given = taken(10).await;
    assert!(given.is_empty() || given == ["first", "second", "third"], "{given:?}");
}

pub async fn the_trace_of_a_job_goes_on_with_its_events(store: Arc<dyn Store>) {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let shop = Shop::new(store);
    let body = serde_json::to_string(&order("order-traced")).unwrap();
    let mut message = Message::new("order.place", "order-traced", body);
    message.attributes.insert("traceparent".to_owned(), Attribute::text(TRACE));
    let hard = SystemClock.now() + Duration::from_secs(20);
    let deadline = Deadline::new(SystemClock.now(), hard);
    assert!(run_batch(&shop.worker, &shop.queue, &[message], deadline).await.is_empty());

    let take = Take { now: hard, made_before: hard, until: hard, limit: 9, after: None };
    let entries = shop.outbox.take(take).await.unwrap().entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].trace.as_ref().map(|trace| trace.as_str()), Some(TRACE));
}
