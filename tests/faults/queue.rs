//! The same on the way to SQS: what is received, deleted, hidden and put aside.

use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use onlyonce::front::{
    ATTRIBUTE_JOB, ATTRIBUTE_KEY, Attribute, Message, Poll, QUARANTINE_ATTRIBUTE, SqsQueue,
    run_batch,
};
use onlyonce::protocol::{Quarantine, Status};
use onlyonce::runtime::Clock;
use onlyonce::service::Deadline;
use serde_json::{Value, json};

use crate::bench::{Bench, id};

fn rule(operation: &str, times: Option<u32>, fault: Value) -> Value {
    let mut rule = json!({"service": "sqs", "operation": operation});
    let fields = rule.as_object_mut().unwrap();
    fields.extend(fault.as_object().unwrap().clone());
    fields.extend(times.map(|times| ("times".to_owned(), json!(times))));
    rule
}

fn answer_lost() -> Value {
    json!({"response": {"abort_frac": 0.0}})
}

fn request_lost() -> Value {
    json!({"reset": true})
}

async fn make_queue(bench: &Bench, visibility: &str) -> String {
    let name = format!("faults-{:016x}", fastrand::Rng::new().u64(..));
    let create = Client::new(&bench.plain).create_queue().queue_name(name);
    let create = create.attributes(QueueAttributeName::VisibilityTimeout, visibility);
    create.send().await.unwrap().queue_url.unwrap()
}

fn message(job: &str, key: &str) -> Message {
    let mut message = Message {
        id: format!("m-{key}"),
        receipt: Some("a receipt".to_owned()),
        body: Some(json!(key).to_string()),
        ..Message::default()
    };
    for (name, value) in [(ATTRIBUTE_JOB, job), (ATTRIBUTE_KEY, key)] {
        message.attributes.insert(name.to_owned(), Attribute::text(value));
    }
    message
}

/// Runs a batch of one with four seconds' time, in which it must answer; whether it comes again.
async fn comes_again(bench: &Bench, queue: &SqsQueue, message: &Message) -> bool {
    let (begun, now) = (Instant::now(), bench.clock.now());
    let deadline = Deadline::new(now, now + Duration::from_secs(4));
    let retries = run_batch(&bench.worker, queue, std::slice::from_ref(message), deadline).await;
    assert!(begun.elapsed() < Duration::from_secs(5), "late");
    retries == [message.id.as_str()]
}

/// The keys of what is in the dead-letter queue, each with its mark's cause.
async fn dead(bench: &Bench, url: &str) -> Vec<(String, String)> {
    let receive = Client::new(&bench.plain).receive_message().queue_url(url);
    let receive = receive.max_number_of_messages(10).message_attribute_names("All");
    let messages = receive.send().await.unwrap().messages.unwrap_or_default();
    let read = |message: aws_sdk_sqs::types::Message| {
        let attributes = message.message_attributes.unwrap();
        let text = |name: &str| attributes[name].string_value.clone().unwrap();
        let mark: Value = serde_json::from_str(&text(QUARANTINE_ATTRIBUTE)).unwrap();
        (text(ATTRIBUTE_KEY), mark["cause"].as_str().unwrap().to_owned())
    };
    messages.into_iter().map(read).collect()
}

async fn quarantine(bench: &Bench, key: &str) -> Option<Quarantine> {
    bench.record("refuse", key).await.unwrap().quarantine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_may_be_put_aside_twice_but_is_never_lost() {
    let bench = Bench::new().await;
    let dlq = make_queue(&bench, "30").await;
    let queue = SqsQueue::new(&bench.broken).dlq_url(Some(dlq.clone()));
    let failed = ("unheard".to_owned(), "failed".to_owned());

    bench.proxy.breaks(json!([rule("SendMessage", Some(1), answer_lost())]));
    assert!(!comes_again(&bench, &queue, &message("refuse", "unheard")).await);
    assert_eq!(bench.proxy.heals(), [1]);
    // SQS cannot tell the SDK's second attempt from a second message.
    assert_eq!(dead(&bench, &dlq).await, [failed.clone(), failed]);
    assert_eq!(quarantine(&bench, "unheard").await, Some(Quarantine::Sent));

    let lost = message("refuse", "lost");
    bench.proxy.breaks(json!([rule("SendMessage", None, request_lost())]));
    assert!(comes_again(&bench, &queue, &lost).await, "it is in no queue but its own");
    assert!(bench.proxy.heals()[0] > 0);
    assert_eq!(dead(&bench, &dlq).await, []);
    assert_eq!(quarantine(&bench, "lost").await, Some(Quarantine::Pending));
    assert!(!comes_again(&bench, &queue, &lost).await);
    assert_eq!(dead(&bench, &dlq).await, [("lost".to_owned(), "failed".to_owned())]);
    assert_eq!(quarantine(&bench, "lost").await, Some(Quarantine::Sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_not_written_costs_a_copy_and_no_message() {
    let bench = Bench::new().await;
    let dlq = make_queue(&bench, "30").await;
    let queue = SqsQueue::new(&bench.broken).dlq_url(Some(dlq.clone()));
    // Not the update that says that the job failed, but the one that says that it was put aside.
    let throttled = json!({"error": {"code": "ThrottlingException"}});
    let marks = "contains(UpdateExpression, '#quarantine') && \
                 !contains(UpdateExpression, '#status')";
    let mut rule = rule("UpdateItem", None, throttled);
    rule["service"] = json!("dynamodb");
    rule["body"] = json!(marks);
    bench.proxy.breaks(json!([rule]));
    assert!(!comes_again(&bench, &queue, &message("refuse", "k")).await, "it is put aside");
    assert!(bench.proxy.heals()[0] > 0);
    assert_eq!(quarantine(&bench, "k").await, Some(Quarantine::Pending));
    let failed = || ("k".to_owned(), "failed".to_owned());
    assert_eq!(dead(&bench, &dlq).await, [failed()]);
    // A stray copy of it: put aside as well, rather than trust in what is not written.
    assert!(!comes_again(&bench, &queue, &message("refuse", "k")).await);
    assert_eq!(dead(&bench, &dlq).await, [failed()]);
    assert_eq!(quarantine(&bench, "k").await, Some(Quarantine::Sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_that_is_not_set_is_given_up_in_time_and_the_message_comes_again() {
    let bench = Bench::new().await;
    let url = make_queue(&bench, "30").await;
    let queue = SqsQueue::new(&bench.broken).queue_url(Some(url));
    for (key, fault) in [
        ("throttled", json!({"error": {"code": "ThrottlingException"}})),
        ("silent", json!({"timeout_ms": 60_000})),
    ] {
        bench.proxy.breaks(json!([rule("ChangeMessageVisibilityBatch", None, fault)]));
        assert!(comes_again(&bench, &queue, &message("stumble", key)).await);
        assert!(bench.proxy.heals()[0] > 0, "{key}");
        let record = bench.record("stumble", key).await.unwrap();
        assert_eq!(record.status, Status::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poller_outlives_an_outage_of_its_store() {
    let bench = Bench::new().await;
    let url = make_queue(&bench, "2").await;
    let client = Client::new(&bench.plain);
    let keys = ["a", "b", "c"];
    for key in keys {
        send(&client, &url, key).await;
    }
    bench.proxy.breaks(json!([{"service": "dynamodb", "reset": true}]));
    let poll = Poll::open(&bench.plain, &url).await.unwrap();
    let queue = SqsQueue::new(&bench.plain).queue_url(Some(url.clone()));
    let (stop, told) = tokio::sync::watch::channel(false);
    let outage = async {
        // Each message is hidden for two seconds: longer than that, and some have come twice.
        bench.clock.sleep_until(bench.clock.now() + Duration::from_secs(5)).await;
        for key in keys {
            assert_eq!(bench.record("charge", key).await, None, "a store that is out runs nothing");
        }
        assert!(bench.proxy.heals()[0] > 0, "nothing was broken");
        until_empty(&client, &url).await;
        stop.send(true).unwrap();
    };
    let both = async { tokio::join!(poll.serve(&bench.worker, &queue, told), outage) };
    let (served, ()) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is emptied");
    served.unwrap();
    for key in keys {
        bench.is_done_once("charge", key).await;
    }
}

/// Sends a `charge` under this key.
async fn send(client: &Client, url: &str, key: &str) {
    let text = |value: &str| {
        MessageAttributeValue::builder().data_type("String").string_value(value).build()
    };
    let send = client.send_message().queue_url(url).message_body(json!(key).to_string());
    let send = send.message_attributes(ATTRIBUTE_JOB, text("charge").unwrap());
    send.message_attributes(ATTRIBUTE_KEY, text(key).unwrap()).send().await.unwrap();
}

/// Returns once the queue has no message, hidden ones included.
async fn until_empty(client: &Client, url: &str) {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
    ];
    loop {
        let left = client.get_queue_attributes().queue_url(url);
        let left = left.set_attribute_names(Some(names.to_vec())).send().await.unwrap();
        if left.attributes.unwrap().values().all(|count| count == "0") {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polled_queue_is_emptied_whatever_is_lost_on_the_way() {
    let bench = Bench::new().await;
    let url = make_queue(&bench, "3").await;
    let client = Client::new(&bench.plain);
    let keys = ["a", "b", "c"];
    for key in keys {
        send(&client, &url, key).await;
    }
    bench.proxy.breaks(json!([
        // Received by nobody, and hidden all the same.
        rule("ReceiveMessage", Some(1), answer_lost()),
        rule("DeleteMessageBatch", Some(1), answer_lost()),
        // All that the SDK tries: done, and not deleted.
        rule("DeleteMessageBatch", Some(3), request_lost()),
    ]));
    let poll = Poll::open(&bench.broken, &url).await.unwrap();
    let queue = SqsQueue::new(&bench.broken).queue_url(Some(url.clone()));
    let (stop, told) = tokio::sync::watch::channel(false);
    let until_empty = async {
        until_empty(&client, &url).await;
        stop.send(true).unwrap();
    };
    let both = async { tokio::join!(poll.serve(&bench.worker, &queue, told), until_empty) };
    let (served, ()) =
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is emptied");
    served.unwrap();
    assert!(bench.proxy.heals()[0] > 0, "nothing was broken");
    for key in keys {
        bench.is_done_once("charge", key).await;
        assert_eq!(bench.seen.of(&id("charge", key)).len(), 1);
    }
}
