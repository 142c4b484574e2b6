//! A producer, with faults on its way to SQS: nothing is lost, and what comes twice is one order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use onlyonce::producer::{Command, Producer, SendErrorKind};
use onlyonce::protocol::IdempotencyKey;
use serde_json::{Value, json};

use crate::bench::Bench;

fn rule(times: Option<u32>, fault: Value) -> Value {
    let mut rule = json!({"service": "sqs", "operation": "SendMessageBatch"});
    let fields = rule.as_object_mut().unwrap();
    fields.extend(fault.as_object().unwrap().clone());
    fields.extend(times.map(|times| ("times".to_owned(), json!(times))));
    rule
}

async fn make_queue(bench: &Bench) -> String {
    let name = format!("faults-{:016x}", fastrand::Rng::new().u64(..));
    let create = Client::new(&bench.plain).create_queue().queue_name(name);
    create.send().await.unwrap().queue_url.unwrap()
}

fn commands(count: usize) -> impl Iterator<Item = Command> {
    (0..count).map(|n| {
        let key = IdempotencyKey::new(format!("order:{n}:settle")).unwrap();
        Command::new("order.settle", key, &n).unwrap()
    })
}

/// How often each key is in the queue.
async fn found(bench: &Bench, url: &str) -> BTreeMap<String, usize> {
    let client = Client::new(&bench.plain);
    let mut keys = BTreeMap::new();
    loop {
        let receive = client.receive_message().queue_url(url).max_number_of_messages(10);
        let received = receive.message_attribute_names("All").send().await.unwrap();
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            return keys;
        }
        for message in messages {
            let key = &message.message_attributes.unwrap()["idempotency-key"];
            *keys.entry(key.string_value.clone().unwrap()).or_default() += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_by_the_services_fault_is_sent_again() {
    let bench = Bench::new().await;
    for (name, fault, copies) in [
        ("throttled", json!({"error": {"code": "RequestThrottled"}}), 1),
        ("unavailable", json!({"error": {"code": "ServiceUnavailable", "status": 503}}), 1),
        ("request lost", json!({"reset": true}), 1),
        // SQS has them, and cannot tell the second request from other messages.
        ("answer lost", json!({"response": {"abort_frac": 0.0}}), 2),
    ] {
        let url = make_queue(&bench).await;
        let producer = Producer::new(&bench.broken, &url);
        bench.proxy.breaks(json!([rule(Some(1), fault)]));
        let outcomes = producer.send_all(commands(10)).await;
        assert_eq!(bench.proxy.heals(), [1], "{name}: nothing was broken");
        for outcome in &outcomes {
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
        }
        let found = found(&bench, &url).await;
        assert_eq!(found.len(), 10, "{name}");
        assert!(found.values().all(|times| *times == copies), "{name}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_service_costs_one_answers_time_and_is_asked_again() {
    let bench = Bench::new().await;
    let url = make_queue(&bench).await;
    let producer = Producer::new(&bench.broken, &url).limit(Duration::from_secs(8));
    bench.proxy.breaks(json!([rule(Some(1), json!({"timeout_ms": 60_000}))]));
    let begun = Instant::now();
    let outcomes = producer.send_all(commands(3)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_eq!(bench.proxy.heals(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_broken_is_given_up_in_time_and_said_to_be_in_doubt() {
    let bench = Bench::new().await;
    let url = make_queue(&bench).await;
    let producer = Producer::new(&bench.broken, &url).limit(Duration::from_secs(2));
    bench.proxy.breaks(json!([rule(None, json!({"response": {"abort_frac": 0.0}}))]));
    let begun = Instant::now();
    let outcomes = producer.send_all(commands(2)).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "late");
    assert!(bench.proxy.heals()[0] > 1, "it was not tried again");
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Unconfirmed, "{error}");
        assert!(!error.to_string().contains("order:"), "{error}");
    }
    // In doubt, and in the queue.
    assert_eq!(found(&bench, &url).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_sender_may_not_is_not_tried_again() {
    let bench = Bench::new().await;
    let url = make_queue(&bench).await;
    let producer = Producer::new(&bench.broken, &url);
    let forbidden = json!({"error": {"code": "AccessDeniedException", "status": 403}});
    bench.proxy.breaks(json!([rule(None, forbidden)]));
    let outcomes = producer.send_all(commands(2)).await;
    assert_eq!(bench.proxy.heals(), [1]);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Refused);
        assert!(error.to_string().contains("allow the producer sqs:SendMessage"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_a_lost_answer_leaves_the_doubt() {
    let bench = Bench::new().await;
    let url = make_queue(&bench).await;
    let producer = Producer::new(&bench.broken, &url);
    let forbidden = json!({"error": {"code": "AccessDeniedException", "status": 403}});
    let lost = json!({"response": {"abort_frac": 0.0}});
    bench.proxy.breaks(json!([rule(Some(1), lost), rule(None, forbidden)]));
    let error = producer.send(commands(1).next().unwrap()).await.unwrap_err();
    assert!(bench.proxy.heals().iter().all(|struck| *struck == 1));
    assert_eq!(error.kind(), SendErrorKind::Unconfirmed, "{error}");
    assert!(error.to_string().contains("an earlier request may have arrived"), "{error}");
    assert_eq!(found(&bench, &url).await.len(), 1, "it did");
}
