//! The front's dealings with SQS, against the service at `AWS_ENDPOINT_URL`.

#![cfg(feature = "lambda")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::HashMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use onlyonce::front::{
    Attribute, AttributeValue, Delay, Mark, Message, Placed, Poll, QUARANTINE_ATTRIBUTE, Queue,
    SqsQueue,
};
use onlyonce::sdk;

struct Fixture {
    sdk: aws_config::SdkConfig,
    client: Client,
    url: String,
    arn: String,
}

async fn queue(suffix: &str, attributes: &[(QueueAttributeName, &str)]) -> Fixture {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local SQS and sets it"
    );
    let sdk = sdk::load().await;
    let client = Client::new(&sdk);
    let name = format!("sqs-test-{:016x}{suffix}", fastrand::Rng::new().u64(..));
    let mut create = client.create_queue().queue_name(name);
    for (attribute, value) in attributes {
        create = create.attributes(attribute.clone(), *value);
    }
    let url = create.send().await.unwrap().queue_url.unwrap();
    let arn = client
        .get_queue_attributes()
        .queue_url(&url)
        .attribute_names(QueueAttributeName::QueueArn)
        .send()
        .await
        .unwrap()
        .attributes
        .unwrap()[&QueueAttributeName::QueueArn]
        .clone();
    Fixture { sdk, client, url, arn }
}

impl Fixture {
    /// Receives exactly `count` messages, or panics after a while.
    async fn receive(&self, count: usize) -> Vec<aws_sdk_sqs::types::Message> {
        let mut received = Vec::new();
        for _ in 0..count + 5 {
            let got = self
                .client
                .receive_message()
                .queue_url(&self.url)
                .max_number_of_messages(10)
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::All)
                .wait_time_seconds(1)
                .send()
                .await
                .unwrap();
            received.extend(got.messages.unwrap_or_default());
            if received.len() >= count {
                break;
            }
        }
        assert_eq!(received.len(), count);
        received
    }

    async fn hidden(&self) -> String {
        let name = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
        let attributes = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(name.clone())
            .send()
            .await
            .unwrap()
            .attributes
            .unwrap();
        attributes[&name].clone()
    }

    fn front(&self, message: &aws_sdk_sqs::types::Message) -> Message {
        Message {
            id: message.message_id.clone().unwrap(),
            receipt: message.receipt_handle.clone(),
            body: message.body.clone(),
            source_arn: Some(self.arn.clone()),
            ..Message::default()
        }
    }
}

fn mark() -> Mark {
    Mark {
        job: Some("job".to_owned()),
        key: Some("ab".repeat(32)),
        token: Some(3),
        cause: "failed".to_owned(),
        error: "no".to_owned(),
        at: 1,
    }
}

fn message(body: &str, attributes: impl IntoIterator<Item = (String, Attribute)>) -> Message {
    Message {
        id: "m-1".to_owned(),
        body: Some(body.to_owned()),
        attributes: attributes.into_iter().collect(),
        group: Some("customer-7".to_owned()),
        ..Message::default()
    }
}

#[tokio::test]
async fn visibility_is_set_in_chunks_of_ten_and_a_failed_entry_hurts_no_other() {
    let fixture = queue("", &[(QueueAttributeName::VisibilityTimeout, "600")]).await;
    for n in 0..25 {
        let send = fixture.client.send_message().queue_url(&fixture.url);
        send.message_body(n.to_string()).send().await.unwrap();
    }
    let received = fixture.receive(25).await;
    assert_eq!(fixture.hidden().await, "25");
    let mut messages: Vec<_> = received.iter().map(|m| fixture.front(m)).collect();
    // One entry of the first chunk is refused.
    messages[4].receipt = Some("no receipt of this queue".to_owned());
    let delays = messages.iter().map(|message| Delay { message, seconds: 0 }).collect();
    SqsQueue::new(&fixture.sdk).delay(delays).await;
    assert_eq!(fixture.hidden().await, "1");
    fixture.receive(24).await;
}

#[tokio::test]
async fn a_delay_outlasts_the_queues_own_timeout() {
    let fixture = queue("", &[(QueueAttributeName::VisibilityTimeout, "1")]).await;
    let send = fixture.client.send_message().queue_url(&fixture.url);
    send.message_body("{}").send().await.unwrap();
    let received = fixture.receive(1).await;
    let message = fixture.front(&received[0]);
    let delays = vec![Delay { message: &message, seconds: 43_195 }];
    SqsQueue::new(&fixture.sdk).delay(delays).await;
    // Three times the queue's own timeout, waited for by the service.
    for _ in 0..3 {
        let receive = fixture.client.receive_message().queue_url(&fixture.url);
        let again = receive.wait_time_seconds(1).send().await.unwrap();
        assert_eq!(again.messages.unwrap_or_default().len(), 0);
    }
}

#[tokio::test]
async fn a_queue_that_hides_nothing_is_not_polled() {
    let fixture = queue("", &[(QueueAttributeName::VisibilityTimeout, "0")]).await;
    let error = Poll::open(&fixture.sdk, &fixture.url).await.unwrap_err();
    assert!(error.to_string().contains("visibility timeout is 0"), "{error}");
}

#[tokio::test]
async fn a_quarantined_message_keeps_its_attributes_and_says_why() {
    let fixture = queue("", &[]).await;
    let sqs = SqsQueue::new(&fixture.sdk).dlq_url(Some(fixture.url.clone()));
    let attributes = [
        ("idempotency-key".to_owned(), Attribute::text("user:42")),
        (
            "trace".to_owned(),
            Attribute {
                data_type: "Binary.gzip".to_owned(),
                value: AttributeValue::Binary(vec![0, 159, 146, 150]),
            },
        ),
        // As a message has it that was here before: replaced, not added to.
        (QUARANTINE_ATTRIBUTE.to_owned(), Attribute::text("{}")),
    ];
    let message = message("{\"a\":1}", attributes);
    assert_eq!(sqs.quarantine(&message, &mark()).await.unwrap(), Placed::Sent);
    let received = fixture.receive(1).await.remove(0);
    assert_eq!(received.body.as_deref(), Some("{\"a\":1}"));
    let attributes: HashMap<_, _> = received.message_attributes.unwrap();
    assert_eq!(attributes.len(), 3);
    assert_eq!(attributes["idempotency-key"].string_value.as_deref(), Some("user:42"));
    assert_eq!(attributes["trace"].binary_value.as_ref().unwrap().as_ref(), [0, 159, 146, 150]);
    let mark: serde_json::Value =
        serde_json::from_str(attributes[QUARANTINE_ATTRIBUTE].string_value.as_ref().unwrap())
            .unwrap();
    assert_eq!(
        mark,
        serde_json::json!({
            "job": "job", "key": "ab".repeat(32), "token": 3,
            "cause": "failed", "error": "no", "at": 1
        })
    );
}

#[tokio::test]
async fn a_fifo_quarantine_keeps_the_group_and_takes_one_failure_once() {
    let fixture = queue(".fifo", &[(QueueAttributeName::FifoQueue, "true")]).await;
    let sqs = SqsQueue::new(&fixture.sdk).dlq_url(Some(fixture.url.clone()));
    let message = message("{}", []);
    for _ in 0..2 {
        assert_eq!(sqs.quarantine(&message, &mark()).await.unwrap(), Placed::Sent);
    }
    let received = fixture.receive(1).await.remove(0);
    let system = received.attributes.unwrap();
    assert_eq!(system[&MessageSystemAttributeName::MessageGroupId], "customer-7");
    assert_eq!(
        system[&MessageSystemAttributeName::MessageDeduplicationId],
        format!("{}-3", "ab".repeat(32))
    );
}

#[tokio::test]
async fn a_fifo_quarantine_keeps_each_message_that_brings_another_payload() {
    let fixture = queue(".fifo", &[(QueueAttributeName::FifoQueue, "true")]).await;
    let sqs = SqsQueue::new(&fixture.sdk).dlq_url(Some(fixture.url.clone()));
    // The job failed under this token, too.
    assert_eq!(sqs.quarantine(&message("{}", []), &mark()).await.unwrap(), Placed::Sent);
    for id in ["m-2", "m-3", "m-3"] {
        let message = Message { id: id.to_owned(), ..message(id, []) };
        let mark = Mark { cause: "mismatch".to_owned(), ..mark() };
        assert_eq!(sqs.quarantine(&message, &mark).await.unwrap(), Placed::Sent);
    }
    let received = fixture.receive(3).await;
    let bodies: Vec<_> = received.into_iter().filter_map(|message| message.body).collect();
    assert_eq!(bodies, ["{}", "m-2", "m-3"]);
}

#[tokio::test]
async fn what_cannot_carry_the_mark_is_left_to_redrive() {
    let fixture = queue("", &[]).await;
    let sqs = SqsQueue::new(&fixture.sdk).dlq_url(Some(fixture.url.clone()));
    let ten = (0..10).map(|n| (format!("a{n}"), Attribute::text("x")));
    let full = message("{}", ten);
    let large = message(&"x".repeat(1024 * 1024 - 20), []);
    let empty = message("", []);
    for message in [full, large, empty] {
        let placed = sqs.quarantine(&message, &mark()).await.unwrap();
        assert!(matches!(placed, Placed::Left(_)), "{placed:?}");
    }
    let nowhere = SqsQueue::new(&fixture.sdk);
    let placed = nowhere.quarantine(&message("{}", []), &mark()).await.unwrap();
    assert!(matches!(placed, Placed::Left(why) if why.contains("ONLYONCE_DLQ_URL")), "{placed:?}");
}
