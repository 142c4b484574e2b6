//! A jobs file's `[message]` table at work: from an SQS message to the request it makes.

use async_trait::async_trait;
use onlyonce::error::Error;
use onlyonce::front::{Delay, Mark, Message, Placed, Queue, run_batch};
use onlyonce::service::Deadline;

use crate::receiver::Receiver;
use crate::{Duration, Jobs, KEYED, keyed};

/// A queue that takes nothing.
struct NoQueue;

#[async_trait]
impl Queue for NoQueue {
    async fn quarantine(&self, _: &Message, mark: &Mark) -> Result<Placed, Error> {
        panic!("{}", mark.error)
    }

    async fn delay(&self, _: Vec<Delay<'_>>) {}
}

async fn run(jobs: &Jobs, bodies: &[&str]) {
    let message = |(n, body): (usize, &&str)| Message {
        id: format!("m-{n}"),
        body: Some((*body).to_owned()),
        ..Message::default()
    };
    let messages: Vec<_> = bodies.iter().enumerate().map(message).collect();
    let now = jobs.worker.clock().now();
    let deadline = Deadline::new(now, now + Duration::from_secs(30));
    assert_eq!(run_batch(&jobs.worker, &NoQueue, &messages, deadline).await, [""; 0]);
}

#[tokio::test]
async fn a_notification_becomes_one_request_under_the_key_an_expression_finds() {
    let receiver = Receiver::start(&[]).await;
    let url = KEYED.replace("{id}", "{currency}");
    let message = "[message]\nunwrap = \"sns\"\nkey = \"order.id\"\ndefault_job = \"job\"\n";
    let jobs = Jobs::new(&format!("{url}{message}"), &receiver);
    let body = include_str!("../fixtures/sns_plain_notification.json");
    run(&jobs, &[body, body, include_str!("../fixtures/plain.json")]).await;
    let seen = receiver.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].line, "POST /v1/charges/eur HTTP/1.1");
    assert_eq!(seen[0].body, r#"{"currency":"eur","order":{"id":"o-1001","total":4990}}"#);
}

#[tokio::test]
async fn the_text_in_an_envelope_is_sent_as_it_is_by_a_raw_job() {
    let receiver = Receiver::start(&[]).await;
    let url = KEYED.replace("{id}", "1");
    let raw = "body = \"raw\"\n[message]\nunwrap = \"envelope\"\n";
    let jobs = Jobs::new(&format!("{url}{raw}"), &receiver);
    let body = include_str!("../fixtures/envelope_text.json").replace("order.place", "job");
    run(&jobs, &[&body]).await;
    assert_eq!(receiver.seen()[0].body, "sku;count\nA-7;2\n");
}

#[tokio::test]
async fn a_time_of_sending_in_the_payload_makes_no_other_payload() {
    let receiver = Receiver::start(&[]).await;
    let jobs = Jobs::new(&keyed("fingerprint = [\"id\"]"), &receiver);
    for body in ["{\"id\":7,\"sent_at\":1}", "{\"id\":7,\"sent_at\":2}"] {
        jobs.run("k", body).await;
    }
    assert_eq!(receiver.seen().len(), 1);
}
