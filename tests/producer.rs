//! A producer against the SQS at `AWS_ENDPOINT_URL`.

#![cfg(feature = "producer")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use onlyonce::IdempotencyKey;
use onlyonce::producer::{Command, Producer, SendErrorKind, TraceParent};
use onlyonce::protocol::RecordId;
use onlyonce::sdk;
use serde_json::{Value, json};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct Fixture {
    sdk: aws_config::SdkConfig,
    client: Client,
    url: String,
}

async fn queue(suffix: &str) -> Fixture {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local SQS and sets it"
    );
    let sdk = sdk::load().await;
    let client = Client::new(&sdk);
    let name = format!("producer-{:016x}{suffix}", fastrand::Rng::new().u64(..));
    let mut create = client.create_queue().queue_name(name);
    if suffix == ".fifo" {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
    }
    let url = create.send().await.unwrap().queue_url.unwrap();
    Fixture { sdk, client, url }
}

impl Fixture {
    fn producer(&self) -> Producer {
        Producer::new(&self.sdk, &self.url)
    }

    /// Receives and deletes until there are `count`, and looks whether there is one more.
    async fn receive(&self, count: usize) -> Vec<Message> {
        let mut received = Vec::new();
        for wait in std::iter::repeat_n(1, count + 5).chain([0]) {
            let receive = self.client.receive_message().queue_url(&self.url);
            let got = receive
                .max_number_of_messages(10)
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::All)
                .wait_time_seconds(if received.len() < count { wait } else { 0 })
                .send()
                .await
                .unwrap()
                .messages
                .unwrap_or_default();
            for message in &got {
                let delete = self.client.delete_message().queue_url(&self.url);
                let receipt = message.receipt_handle.clone();
                delete.set_receipt_handle(receipt).send().await.unwrap();
            }
            if got.is_empty() && received.len() >= count {
                break;
            }
            received.extend(got);
        }
        assert_eq!(received.len(), count);
        received
    }
}

fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).unwrap()
}

fn order(n: usize) -> Command {
    Command::new("order.settle", key(&format!("order:{n}:settle")), &n).unwrap()
}

fn attribute<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.message_attributes.as_ref()?.get(name)?.string_value.as_deref()
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body.as_deref().unwrap()).collect()
}

#[tokio::test]
async fn a_command_is_sent_with_its_key_job_and_trace() {
    let fixture = queue("").await;
    let command = order(1).traceparent(TraceParent::new(TRACE).unwrap());
    let sent = fixture.producer().send(command).await.unwrap();
    assert_eq!(sent.id, Some(RecordId::new("default", "order.settle", &key("order:1:settle"))));
    let message = fixture.receive(1).await.remove(0);
    assert_eq!(message.message_id.as_deref(), Some(sent.message_id.as_str()));
    assert_eq!(message.body.as_deref(), Some("1"));
    assert_eq!(attribute(&message, "idempotency-key"), Some("order:1:settle"));
    assert_eq!(attribute(&message, "job"), Some("order.settle"));
    assert_eq!(attribute(&message, "traceparent"), Some(TRACE));
    assert_eq!(message.message_attributes.unwrap().len(), 3);

    let producer = fixture.producer().attributes("dedupe-id", "kind").namespace("eu");
    let sent = producer.send(Command::raw("note", key("note:1"), "text")).await.unwrap();
    assert_eq!(sent.id, Some(RecordId::new("eu", "note", &key("note:1"))));
    let message = fixture.receive(1).await.remove(0);
    assert_eq!(message.body.as_deref(), Some("text"));
    assert_eq!(attribute(&message, "dedupe-id"), Some("note:1"));
    assert_eq!(attribute(&message, "kind"), Some("note"));
}

#[tokio::test]
async fn many_are_sent_in_batches_and_answered_for_in_order() {
    let fixture = queue("").await;
    let mut commands: Vec<_> = (0..35).map(order).collect();
    // These cost no other: one has nothing to say, one too much, one a delay beyond SQS's.
    commands[3] = Command::raw("order.settle", key("order:3:settle"), "");
    commands[17] = Command::raw("order.settle", key("order:17:settle"), "x".repeat(1024 * 1024));
    commands[20] = order(20).delay(Duration::from_secs(901));
    let outcomes = fixture.producer().send_all(commands).await;
    assert_eq!(outcomes.len(), 35);
    for (n, outcome) in outcomes.iter().enumerate() {
        let id = RecordId::new("default", "order.settle", &key(&format!("order:{n}:settle")));
        match outcome {
            Ok(sent) => assert_eq!(sent.id, Some(id)),
            Err(error) => {
                assert!([3, 17, 20].contains(&n), "{error}");
                assert_eq!(error.kind(), SendErrorKind::Faulty);
                let said = error.to_string();
                assert!(said.contains(id.as_str()) && !said.contains("order:"), "{said}");
            }
        }
    }
    let said = outcomes[17].as_ref().unwrap_err().to_string();
    assert!(said.contains("1048633 bytes"), "{said}");
    let received = fixture.receive(32).await;
    let ids: BTreeSet<_> = received.iter().filter_map(|it| it.message_id.as_deref()).collect();
    let sent: BTreeSet<_> =
        outcomes.iter().flatten().map(|sent| sent.message_id.as_str()).collect();
    assert_eq!(ids, sent);
}

#[tokio::test]
async fn large_messages_go_in_requests_of_their_own() {
    let fixture = queue("").await;
    let large = |n: usize| {
        let body = "x".repeat(600 * 1024);
        Command::raw("note", key(&format!("note:{n}")), body)
    };
    let outcomes = fixture.producer().send_all((0..3).map(large)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    fixture.receive(3).await;
}

#[tokio::test]
async fn a_delayed_command_is_not_there_at_once() {
    let fixture = queue("").await;
    let late = order(1).delay(Duration::from_millis(1500));
    fixture.producer().send(late).await.unwrap();
    let name = QueueAttributeName::ApproximateNumberOfMessagesDelayed;
    let ask = fixture.client.get_queue_attributes().queue_url(&fixture.url);
    let counts = ask.attribute_names(name.clone()).send().await.unwrap().attributes.unwrap();
    assert_eq!(counts[&name], "1");
    fixture.receive(1).await;
}

#[tokio::test]
async fn a_fifo_queue_takes_one_command_once_and_keeps_groups_in_order() {
    let fixture = queue(".fifo").await;
    let command = |n: usize| order(n).group(["ada", "bo"][n % 2]);
    let producer = fixture.producer();
    let first = producer.send_all((0..12).map(command)).await;
    let again = producer.send_all((0..12).map(command)).await;
    for (first, again) in first.iter().zip(&again) {
        let (first, again) = (first.as_ref().unwrap(), again.as_ref().unwrap());
        assert_eq!(first.sequence_number, again.sequence_number, "SQS knows it from before");
    }
    // Another job under the same key is another operation.
    let other = Command::new("order.ship", key("order:0:settle"), &0).unwrap().group("cy");
    let other = producer.send(other).await.unwrap();
    let received = fixture.receive(13).await;
    for (group, wanted) in [("ada", [0, 2, 4, 6, 8, 10]), ("bo", [1, 3, 5, 7, 9, 11])] {
        let of_group = |message: &&Message| {
            let system = message.attributes.as_ref().unwrap();
            system[&MessageSystemAttributeName::MessageGroupId] == group
        };
        let found: Vec<_> = received.iter().filter(of_group).cloned().collect();
        assert_eq!(bodies(&found), wanted.map(|n| n.to_string()));
    }
    let dedup = |message: &Message| {
        let system = message.attributes.as_ref().unwrap();
        system[&MessageSystemAttributeName::MessageDeduplicationId].clone()
    };
    let digests: BTreeSet<_> = received.iter().map(dedup).collect();
    assert!(digests.contains(other.id.unwrap().as_str()) && digests.len() == 13);
}

#[tokio::test]
async fn in_a_fifo_group_nothing_overtakes_what_was_not_sent() {
    let fixture = queue(".fifo").await;
    let mut commands: Vec<_> = (0..4).map(|n| order(n).group("ada")).collect();
    commands[1] = commands[1].clone().delay(Duration::from_secs(1));
    commands.push(order(4).group("bo"));
    commands.push(order(5));
    let outcomes = fixture.producer().send_all(commands).await;
    let kinds: Vec<_> = outcomes.iter().map(|it| it.as_ref().err().map(|e| e.kind())).collect();
    let (faulty, behind) = (Some(SendErrorKind::Faulty), Some(SendErrorKind::Behind));
    assert_eq!(kinds, [None, faulty, behind, behind, None, faulty]);
    let said = outcomes[5].as_ref().unwrap_err().to_string();
    assert!(said.contains("no group"), "{said}");
    assert_eq!(bodies(&fixture.receive(2).await), ["0", "4"]);
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_said_at_once() {
    let fixture = queue("").await;
    let producer = Producer::new(&fixture.sdk, format!("{}-none", fixture.url));
    let error = producer.send(order(1)).await.unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Refused);
    assert!(!error.is_retryable());
    let said = error.to_string();
    assert!(said.contains("QueueDoesNotExist") || said.contains("NonExistentQueue"), "{said}");
    assert!(said.contains("make the queue"), "{said}");
}

#[tokio::test]
async fn nobody_there_is_tried_until_the_limit() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sdk = settings_for(&format!("http://{free}")).await;
    let producer = Producer::new(&sdk, "http://none/0/q").limit(Duration::from_millis(300));
    let error = tokio::time::timeout(Duration::from_secs(5), producer.send(order(1))).await;
    let error = error.expect("it gives up").unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Unconfirmed);
    let said = error.to_string();
    assert!(error.is_retryable() && said.contains("within 0.3 s"), "{said}");
    assert!(said.contains("send it again under the same key"), "{said}");
}

/// Settings with this endpoint, whatever the environment says.
async fn settings_for(endpoint: &str) -> aws_config::SdkConfig {
    let sdk = sdk::load().await;
    aws_config::SdkConfig::builder()
        .endpoint_url(endpoint)
        .behavior_version(sdk.behavior_version().unwrap())
        .region(sdk.region().cloned())
        .credentials_provider(sdk.credentials_provider().unwrap())
        .http_client(sdk.http_client().unwrap())
        .sleep_impl(sdk.sleep_impl().unwrap())
        .build()
}

/// Stands for an SQS that answers for entries one by one as it is told to, which no emulator does:
/// for each request what became of each body, and nothing of those not named. It hands back the
/// bodies that each request had.
fn answers(script: Vec<Vec<(&'static str, Value)>>) -> (String, JoinHandle<Vec<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for said in script {
            let (mut stream, _) = listener.accept().unwrap();
            let request = read_request(&mut stream);
            let entries = request["Entries"].as_array().unwrap().clone();
            let body = |entry: &Value| entry["MessageBody"].as_str().unwrap().to_owned();
            asked.push(entries.iter().map(body).collect());
            let of = |kind: &str| -> Vec<Value> {
                let named = said.iter().filter(|(_, said)| said.get(kind).is_some());
                let entry = |(wanted, said): &(&str, Value)| {
                    let entry = entries.iter().find(|entry| body(entry) == *wanted).unwrap();
                    let mut said = said.clone();
                    said["Id"] = entry["Id"].clone();
                    said
                };
                named.map(entry).collect()
            };
            let text = json!({"Successful": of("MessageId"), "Failed": of("Code")}).to_string();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n\
                 Connection: close\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .unwrap();
        }
        asked
    });
    (endpoint, serving)
}

fn read_request(stream: &mut TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_fails_by_the_services_fault_is_sent_again_and_no_other() {
    let sent = |id: &str| json!({"MessageId": id, "MD5OfMessageBody": "-"});
    let failed = |code: &str, is_senders: bool| json!({"Code": code, "SenderFault": is_senders});
    let (endpoint, serving) = answers(vec![
        vec![
            ("0", sent("a")),
            ("1", failed("InternalError", false)),
            ("2", failed("InvalidMessageContents", true)),
            ("3", failed("AWS.SimpleQueueService.RequestThrottled", true)),
        ],
        // Of "4" nothing is said.
        vec![("1", sent("b")), ("3", failed("ServiceUnavailable", false)), ("4", sent("c"))],
        vec![("3", sent("d"))],
    ]);
    let producer = Producer::new(&settings_for(&endpoint).await, format!("{endpoint}/0/q"));
    let outcomes = producer.send_all((0..5).map(order)).await;
    let ids: Vec<_> =
        outcomes.iter().map(|it| it.as_ref().ok().map(|it| &*it.message_id)).collect();
    assert_eq!(ids, [Some("a"), Some("b"), None, Some("d"), Some("c")]);
    let error = outcomes[2].as_ref().unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Refused);
    assert!(error.to_string().contains("InvalidMessageContents"), "{error}");
    let asked = serving.join().unwrap();
    assert_eq!(asked, [vec!["0", "1", "2", "3", "4"], vec!["1", "3", "4"], vec!["3"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sqs_refuses_holds_back_its_fifo_group_and_no_other() {
    let sent = |id: &str| json!({"MessageId": id, "MD5OfMessageBody": "-"});
    let refused = json!({"Code": "InvalidMessageContents", "SenderFault": true});
    let (endpoint, serving) = answers(vec![
        vec![("0", refused), ("1", sent("a"))],
        // Of Bo's next message alone.
        vec![("3", sent("b"))],
    ]);
    let producer = Producer::new(&settings_for(&endpoint).await, format!("{endpoint}/0/q.fifo"));
    let outcomes = producer.send_all((0..5).map(|n| order(n).group(["ada", "bo"][n % 2]))).await;
    let kinds: Vec<_> = outcomes.iter().map(|it| it.as_ref().err().map(|e| e.kind())).collect();
    let (refused, behind) = (Some(SendErrorKind::Refused), Some(SendErrorKind::Behind));
    assert_eq!(kinds, [refused, None, behind, None, behind]);
    assert_eq!(serving.join().unwrap(), [vec!["0", "1"], vec!["3"]]);
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn keys_that_look_random_are_warned_of_once_each_kind_or_refused() {
    let fixture = queue("").await;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let uuid = |n: u32| format!("9f8b1c2d-3e4f-4a5b-8c6d-{n:012x}");
    let command = |text: &str| Command::raw("note", key(text), "{}");
    let producer = fixture.producer();
    for text in [&uuid(1), &uuid(2), "1764455551123", "note:1", &format!("note:{}", uuid(3))] {
        producer.send(command(text)).await.unwrap();
    }
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(said.matches("bare UUID").count(), 1, "{said}");
    assert_eq!(said.matches("bare point in time").count(), 1, "{said}");
    assert_eq!(said.matches("WARN").count(), 2, "{said}");
    let id = RecordId::new("default", "note", &key(&uuid(1)));
    assert!(said.contains(id.as_str()) && !said.contains(&uuid(1)), "{said}");

    let strict = fixture.producer().strict();
    let outcomes = strict.send_all([command(&uuid(4)), command("note:2")]).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), SendErrorKind::Faulty);
    assert!(error.to_string().contains("invoice:42:finalize"), "{error}");
    assert!(outcomes[1].is_ok());
    fixture.receive(6).await;
}
