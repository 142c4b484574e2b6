//! Messages that are in the queue once at a time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::outbox::UniqueMessage;
use onlyonce::protocol::{
    ClaimId, ConditionalWrite, IdempotencyKey, Imported, Output, Retention, Timestamp, import,
};
use onlyonce::runtime::{self, Clock, SystemClock};
use onlyonce::store::Store;
use onlyonce::test_util::{Fault, FaultStore};

use crate::shop::{Order, Shop};

/// A write of a record that nothing else here is about.
pub fn any_write(key: &str) -> ConditionalWrite {
    let done = Imported {
        namespace: "default".to_owned(),
        job: "other".to_owned(),
        key: IdempotencyKey::new(key).unwrap(),
        fingerprint: None,
        output: Output::Omitted,
        retention: Retention::Forever,
    };
    import(done, ClaimId::new("one"), Timestamp::from_millis(1))
}

fn message(key: &str, fails: bool) -> UniqueMessage {
    let key = IdempotencyKey::new(key).unwrap();
    let order = Order { id: "index-7".to_owned(), fails, ..Order::default() };
    UniqueMessage::new("reindex", "index-7", key, &order).unwrap()
}

pub async fn one_message_at_a_time(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    assert!(message("monday", false).send(outbox).await.unwrap());
    assert!(!message("monday", false).send(outbox).await.unwrap(), "it waits to be sent");
    let other = IdempotencyKey::new("monday of another").unwrap();
    let other = UniqueMessage::new("reindex", "index-8", other, &Order::default()).unwrap();
    assert!(other.send(outbox).await.unwrap());

    assert_eq!(shop.relayed().await.sent, 2);
    assert_eq!(shop.queue.len(), 2);
    assert!(!message("monday", false).send(outbox).await.unwrap(), "it waits in the queue");
    assert_eq!(shop.relayed().await.sent, 0, "it is not sent again");
    assert_eq!(shop.queue.len(), 2);

    let drained = shop.drained().await;
    assert_eq!((drained.deleted, drained.dead), (2, 0));
    assert!(message("tuesday", false).send(outbox).await.unwrap(), "its job has ended");
    assert_eq!(shop.relayed().await.sent, 1);
    assert_eq!(shop.drained().await.deleted, 1);
}

pub async fn a_period_ends_whatever_became_of_the_message(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    let period = Duration::from_millis(300);
    assert!(message("monday", false).at_most_for(period).send(outbox).await.unwrap());
    assert!(!message("tuesday", false).at_most_for(period).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    SystemClock.sleep_until(SystemClock.now() + period).await;
    assert!(message("wednesday", false).at_most_for(period).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    assert_eq!(shop.queue.len(), 2);
}

pub async fn each_end_of_a_job_makes_room_for_the_next(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    let sent = async |key: &str, fails| {
        let sent = message(key, fails).send(outbox).await.unwrap();
        shop.relayed().await;
        shop.drained().await;
        sent
    };
    assert!(sent("fails", true).await);
    assert_eq!(shop.queue.dead().len(), 1);
    assert!(sent("done", false).await, "the one before has failed for good");
    // The same key: there is nothing to do, and nothing waits any more.
    assert!(sent("done", false).await);
    // The same key with another payload: it is quarantined.
    assert!(sent("done", true).await);
    assert_eq!(shop.queue.dead().len(), 2);
    assert!(sent("fails", true).await, "it runs anew, and fails anew");
    assert!(sent("last", false).await);
}

pub async fn a_late_message_clears_no_later_one(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    let period = Duration::from_millis(200);
    assert!(message("late", false).at_most_for(period).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    SystemClock.sleep_until(SystemClock.now() + period).await;
    assert!(message("next", false).send(outbox).await.unwrap());
    // The late one is done, its row being another's by now.
    let drained = shop.drained().await;
    assert_eq!((drained.deleted, drained.dead), (1, 0));
    assert!(!message("third", false).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    assert_eq!(shop.drained().await.deleted, 1);
    assert!(message("third", false).send(outbox).await.unwrap());
}

pub async fn a_fused_jobs_row_goes_with_it_and_its_event_is_sent(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    for (key, fails) in [("done", false), ("done", false), ("fails", true), ("fails", true)] {
        let order = Order { id: key.to_owned(), fails, ..Order::default() };
        let key = IdempotencyKey::new(key).unwrap();
        let message = UniqueMessage::new("order.fused", "u", key, &order).unwrap();
        assert!(message.send(shop.outbox.as_ref()).await.unwrap());
        shop.relayed().await;
        shop.drained().await;
    }
    shop.relayed().await;
    assert_eq!(shop.told(), ["done"]);
    assert_eq!(shop.queue.dead().len(), 2);
}

pub async fn whatever_goes_wrong_with_its_end_the_next_has_room(store: Arc<dyn Store>) {
    let ends = [("reindex", false), ("reindex", true), ("unclear", false), ("order.fused", false)];
    let faults = [Fault::LoseRequest, Fault::LoseReply, Fault::Contend];
    for (n, (job, fails)) in ends.into_iter().enumerate() {
        for (at, fault) in (0..3).flat_map(|at| faults.map(|fault| (at, fault))) {
            let script = (0..at).map(|_| Fault::None).chain([fault]);
            let faulty = FaultStore::new(store.clone(), script);
            let shop = Shop::new(Arc::new(faulty));
            let id = format!("{n}-{at}-{fault:?}");
            let key = IdempotencyKey::new(id.as_str()).unwrap();
            let order = Order { id: id.clone(), fails, ..Order::default() };
            let message = UniqueMessage::new(job, "u", key, &order).unwrap();
            assert!(message.send(shop.outbox.as_ref()).await.unwrap(), "before {id}");
            assert!(shop.relayed().await.sent > 0);
            let drained = shop.drained().await;
            assert_eq!(drained.deleted, 1, "{id}: {drained:?}");
        }
    }
}

pub async fn what_waits_to_be_sent_is_not_replaced(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    let period = Duration::from_millis(100);
    assert!(message("monday", false).at_most_for(period).send(outbox).await.unwrap());
    SystemClock.sleep_until(SystemClock.now() + period).await;
    assert!(!message("tuesday", true).at_most_for(period).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    // Its place is free only now that it is in the queue.
    assert!(message("tuesday", true).at_most_for(period).send(outbox).await.unwrap());
    assert_eq!(shop.relayed().await.sent, 1);
    let drained = shop.drained().await;
    assert_eq!((drained.deleted, drained.dead), (2, 1), "monday is done, and tuesday has failed");
}

pub async fn what_is_quarantined_again_makes_room_too(store: Arc<dyn Store>) {
    let shop = Shop::new(store);
    let outbox = shop.outbox.as_ref();
    for job in ["unclear", "unclear", "nobodys", "nobodys", "unclear"] {
        let key = IdempotencyKey::new(job).unwrap();
        let message = UniqueMessage::new(job, "u", key, &Order::default()).unwrap();
        assert!(message.send(outbox).await.unwrap(), "{job}: the one before is in quarantine");
        assert_eq!(shop.relayed().await.sent, 1);
        shop.drained().await;
    }
    assert_eq!(shop.queue.dead().len(), 5);
}

pub async fn many_at_once_are_one(store: Arc<dyn Store>) {
    let shop = Arc::new(Shop::new(store));
    let senders: Vec<_> = (0..20)
        .map(|_| {
            let outbox = shop.outbox.clone();
            runtime::spawn(
                async move { message("monday", false).send(outbox.as_ref()).await.unwrap() },
            )
        })
        .collect();
    let mut sent = 0;
    for mut sender in senders {
        sent += usize::from(sender.join().await.unwrap());
    }
    assert_eq!(sent, 1);
    assert_eq!(shop.relayed().await.sent, 1);
    assert_eq!(shop.queue.len(), 1);
}

#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_constraint_that_says_no_at_the_end_makes_room_too() {
    use onlyonce::local::Poller;
    use onlyonce::store::{Commit, SqlStatement};
    use onlyonce::{Context, Router, Worker};

    let statement = |sql: &str, expect_changes| SqlStatement {
        sql: sql.to_owned(),
        params: Vec::new(),
        expect_changes,
    };
    for (store, _keeps) in [crate::sqlite().await, crate::postgres().await] {
        let shop = Shop::new(store.clone());
        let tables = [
            "CREATE TABLE shelf (sku TEXT PRIMARY KEY)",
            "CREATE TABLE sale (sku TEXT REFERENCES shelf (sku) DEFERRABLE INITIALLY DEFERRED)",
        ];
        let tables = tables.map(|sql| statement(sql, None).into());
        assert_eq!(store.commit(&any_write("tables"), &tables).await.unwrap(), Commit::Applied);
        let sell = move |_: Order, cx: Context| async move {
            cx.stage(statement("INSERT INTO sale VALUES ('cup')", Some(1))).await
        };
        let jobs = Router::new().job("sell", sell);
        let worker = Worker::builder(store.clone()).build(jobs).unwrap();
        for key in ["monday", "tuesday"] {
            let key = IdempotencyKey::new(key).unwrap();
            let message = UniqueMessage::new("sell", "cup", key, &Order::default()).unwrap();
            assert!(message.send(shop.outbox.as_ref()).await.unwrap());
            assert_eq!(shop.relayed().await.sent, 1);
            Poller::default().drain(&shop.queue, &worker).await;
        }
        assert_eq!(shop.queue.dead().len(), 2);
    }
}
