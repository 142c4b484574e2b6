//! The stream of the outbox's table, as Lambda brings it.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::outbox::UniqueMessage;
use onlyonce::protocol::{IdempotencyKey, OutboxEntry};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::store::{MemoryStore, Take};
use serde_json::{Value, json};

use crate::shop::{Order, Shop};

/// What is in the outbox, as the stream would bring it: in the order of the ids.
async fn stream(shop: &Shop) -> Value {
    let take = Take {
        now: SystemClock.now(),
        made_before: SystemClock.now() + Duration::from_secs(1),
        until: SystemClock.now(),
        limit: 100,
        after: None,
    };
    let mut entries = shop.outbox.take(take).await.unwrap().entries;
    entries.sort_by(|a, b| a.event_id.as_str().cmp(b.event_id.as_str()));
    let record = |(n, entry): (usize, &OutboxEntry)| {
        let mut image = json!({
            "order_key": {"S": entry.order_key}, "event_id": {"S": entry.event_id.as_str()},
            "event": {"S": entry.event}, "body": {"S": entry.body},
            "created_at": {"N": entry.created_at.millis().to_string()},
        });
        if let Some(unique) = &entry.unique {
            image["message_key"] = json!({"S": unique.key.as_str()});
            image["nonce"] = json!({"S": unique.nonce});
            image["until"] = json!({"N": unique.until.millis().to_string()});
        }
        json!({
            "eventSource": "aws:dynamodb", "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": format!("{n}00"), "NewImage": image},
        })
    };
    json!({"Records": entries.iter().enumerate().map(record).collect::<Vec<_>>()})
}

async fn placed(orders: &[(&str, &str, u32)]) -> Shop {
    let shop = Shop::new(Arc::new(MemoryStore::new()));
    for (id, customer, event_fails) in orders {
        let order = Order {
            id: (*id).to_owned(),
            customer: Some((*customer).to_owned()),
            event_fails: *event_fails,
            ..Order::default()
        };
        shop.placed(&order).await;
    }
    shop
}

async fn answered(shop: &Shop, event: &Value, seconds: u64) -> Value {
    let hard = SystemClock.now() + Duration::from_secs(seconds);
    let answer = shop.relay().answer(&event.to_string(), hard).await.unwrap();
    serde_json::to_value(&answer).unwrap()
}

#[tokio::test]
async fn what_is_sent_is_removed_and_what_is_due_in_time_is_waited_for() {
    let shop = placed(&[("a", "ada", 0), ("b", "ada", 2), ("c", "ada", 0)]).await;
    let event = stream(&shop).await;
    assert_eq!(answered(&shop, &event, 30).await, json!({"batchItemFailures": []}));
    assert_eq!(shop.told(), ["a", "b", "c"]);
    assert_eq!(stream(&shop).await["Records"], json!([]));
    // The stream brings it all again: its ids are known.
    assert_eq!(answered(&shop, &event, 30).await, json!({"batchItemFailures": []}));
    assert_eq!(shop.told(), ["a", "b", "c"]);
}

#[tokio::test]
async fn the_answer_names_the_first_that_must_come_again() {
    let shop = placed(&[("a", "ada", 0), ("b", "bob", 2), ("c", "ada", 0), ("d", "bob", 0)]).await;
    let event = stream(&shop).await;
    // Too short to wait for the second try.
    let answer = answered(&shop, &event, 1).await;
    assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "100"}]}));
    assert_eq!(
        shop.told().into_iter().collect::<std::collections::HashSet<_>>(),
        ["a", "c"].map(str::to_owned).into()
    );
    assert_eq!(answered(&shop, &event, 30).await, json!({"batchItemFailures": []}));
    assert_eq!(shop.told()[2..], ["b", "d"]);
}

#[tokio::test]
async fn events_of_one_job_go_in_their_order_however_the_stream_has_them() {
    let shop = Shop::new(Arc::new(MemoryStore::new()));
    let record = |(n, nth): (usize, &u32)| {
        let order =
            Order { id: nth.to_string(), event_fails: u32::from(*nth == 1), ..Order::default() };
        let id = format!("0000000000017-00{nth}-all0of0the0same0attempt0");
        json!({
            "eventSource": "aws:dynamodb", "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": format!("{n}00"), "NewImage": {
                "order_key": {"S": "ada"}, "event_id": {"S": id}, "event": {"S": "order.placed"},
                "body": {"S": serde_json::to_string(&order).unwrap()}, "created_at": {"N": "17"},
            }},
        })
    };
    let records: Vec<_> = [3, 1, 0, 2].iter().enumerate().map(record).collect();
    let event = json!({"Records": records});
    let answer = answered(&shop, &event, 1).await;
    // The first, of all that are still to go.
    assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "000"}]}));
    assert_eq!(shop.told(), ["0"]);
    assert_eq!(answered(&shop, &event, 30).await, json!({"batchItemFailures": []}));
    assert_eq!(shop.told(), ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn a_unique_message_that_the_stream_brings_again_is_not_sent_again() {
    let shop = placed(&[("a", "ada", 99)]).await;
    let key = IdempotencyKey::new("monday").unwrap();
    let message = UniqueMessage::new("reindex", "index-7", key, &Order::default()).unwrap();
    assert!(message.send(shop.outbox.as_ref()).await.unwrap());
    let event = stream(&shop).await;
    for _ in 0..2 {
        let answer = answered(&shop, &event, 1).await;
        assert_eq!(answer, json!({"batchItemFailures": [{"itemIdentifier": "000"}]}));
        assert_eq!(shop.queue.len(), 1);
    }
    assert_eq!(shop.drained().await.deleted, 1);
    answered(&shop, &event, 1).await;
    assert_eq!(shop.queue.len(), 0, "its job has ended");
}
