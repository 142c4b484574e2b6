//! Lambda's poller: batches in, and what an answer does to its messages.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};

use super::LocalQueue;
use crate::front::{Attribute, AttributeValue, Message, answer};
use crate::protocol::Timestamp;
use crate::runtime::before;
use crate::service::Worker;

/// A poller of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Poller {
    /// Messages in one batch, at most.
    pub batch: usize,
    /// Batches at once.
    pub concurrency: usize,
    /// How long an invocation may take.
    pub timeout: Duration,
}

impl Default for Poller {
    /// Ten messages a batch, four batches at once, half a minute each.
    fn default() -> Self {
        Self { batch: 10, concurrency: 4, timeout: Duration::from_secs(30) }
    }
}

/// One batch, on its way to a worker.
#[derive(Debug)]
pub struct Invocation {
    /// The event as Lambda writes it.
    pub event: String,
    /// When the platform ends the invocation.
    pub hard: Timestamp,
    messages: Vec<Message>,
}

impl Invocation {
    /// The messages of the event.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }
}

/// What became of a queue's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Messages received, copies and redeliveries included.
    pub deliveries: u64,
    /// Messages deleted because their answer said so.
    pub deleted: u64,
    /// Messages in the dead-letter queue.
    pub dead: usize,
}

impl Poller {
    /// Feeds a worker until the queue is empty, waiting for hidden messages.
    pub async fn drain(&self, queue: &LocalQueue, worker: &Worker) -> Drained {
        self.run(queue, async |invocation: &Invocation| {
            let answered = answer(worker, queue, &invocation.event, invocation.hard).await;
            answered.ok().and_then(|response| serde_json::to_value(response).ok())
        })
        .await
    }

    /// Feeds `invoke` until the queue is empty. `None` is a function that failed, was killed or
    /// ran out of time: nothing of its batch is deleted.
    pub async fn run<F>(&self, queue: &LocalQueue, invoke: F) -> Drained
    where
        F: AsyncFn(&Invocation) -> Option<Value>,
    {
        let already = queue.deliveries();
        let mut deleted = 0;
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < self.concurrency {
                let messages = queue.receive(self.batch);
                if messages.is_empty() {
                    break;
                }
                running.push(self.invocation(queue, messages, &invoke));
            }
            if running.is_empty() {
                match queue.next_visible() {
                    Some(at) => queue.clock().sleep_until(at).await,
                    None => break,
                }
            } else {
                // A message may become visible before the next answer.
                let next = queue.next_visible().filter(|at| *at > queue.clock().now());
                let has_room = running.len() < self.concurrency;
                let answered = match next.filter(|_| has_room) {
                    Some(at) => before(queue.clock(), at, running.next()).await.flatten(),
                    None => running.next().await,
                };
                deleted += answered.unwrap_or(0);
            }
        }
        Drained { deliveries: queue.deliveries() - already, deleted, dead: queue.dead().len() }
    }

    async fn invocation<F>(&self, queue: &LocalQueue, messages: Vec<Message>, invoke: &F) -> u64
    where
        F: AsyncFn(&Invocation) -> Option<Value>,
    {
        let hard = queue.clock().now() + self.timeout;
        let invocation = Invocation { event: event(&messages), hard, messages };
        let response = before(queue.clock(), hard, invoke(&invocation)).await.flatten();
        let Some(failed) = response.and_then(|it| failed_ids(&it, &invocation.messages)) else {
            return 0;
        };
        let done = invocation.messages.iter().filter(|message| !failed.contains(&message.id));
        let receipts = done.filter_map(|message| message.receipt.as_deref());
        receipts.map(|receipt| u64::from(queue.delete(receipt))).sum()
    }
}

/// The ids that an answer reports as failed; `None` if it fails the whole batch. By Lambda's rules:
/// nothing, null or an empty list is success of all, and anything malformed is failure of all.
fn failed_ids(response: &Value, messages: &[Message]) -> Option<HashSet<String>> {
    let failures = match response {
        Value::Null => return Some(HashSet::new()),
        Value::Object(fields) => match fields.get("batchItemFailures") {
            Some(Value::Array(failures)) => failures.as_slice(),
            Some(Value::Null) => &[],
            None if fields.is_empty() => &[],
            _ => return None,
        },
        _ => return None,
    };
    let known: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    let id = |failure: &Value| {
        let id = failure.get("itemIdentifier")?.as_str()?;
        known.contains(id).then(|| id.to_owned())
    };
    failures.iter().map(id).collect()
}

/// The messages as Lambda writes them.
fn event(messages: &[Message]) -> String {
    let attribute = |attribute: &Attribute| match &attribute.value {
        AttributeValue::Text(text) => json!({
            "stringValue": text, "stringListValues": [], "binaryListValues": [],
            "dataType": attribute.data_type,
        }),
        AttributeValue::Binary(bytes) => {
            json!({ "binaryValue": STANDARD.encode(bytes), "dataType": attribute.data_type })
        }
    };
    let record = |message: &Message| {
        let attributes: serde_json::Map<_, _> =
            message.attributes.iter().map(|(name, it)| (name.clone(), attribute(it))).collect();
        let mut system = serde_json::Map::new();
        if let Some(sent) = message.sent_at {
            system.insert("SentTimestamp".to_owned(), sent.millis().to_string().into());
        }
        if let Some(group) = &message.group {
            system.insert("MessageGroupId".to_owned(), group.as_str().into());
        }
        json!({
            "messageId": message.id,
            "receiptHandle": message.receipt,
            "body": message.body,
            "attributes": system,
            "messageAttributes": attributes,
            "eventSource": "aws:sqs",
            "eventSourceARN": message.source_arn,
            "awsRegion": "local",
        })
    };
    let records: Vec<_> = messages.iter().map(record).collect();
    json!({ "Records": records }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        ["a", "b"].map(|id| Message { id: id.to_owned(), ..Message::default() }).to_vec()
    }

    fn failed(response: Value) -> Option<Vec<String>> {
        let mut ids: Vec<_> = failed_ids(&response, &messages())?.into_iter().collect();
        ids.sort();
        Some(ids)
    }

    #[test]
    fn nothing_null_and_empty_are_success_of_all() {
        for response in [
            Value::Null,
            json!({}),
            json!({"batchItemFailures": null}),
            json!({"batchItemFailures": []}),
        ] {
            assert_eq!(failed(response), Some(vec![]));
        }
        let one = json!({"batchItemFailures": [{"itemIdentifier": "b"}]});
        assert_eq!(failed(one), Some(vec!["b".to_owned()]));
    }

    #[test]
    fn what_is_malformed_fails_the_whole_batch() {
        for response in [
            json!("ok"),
            json!({"batchItemFailures": "a"}),
            json!({"BatchItemFailures": [{"itemIdentifier": "a"}]}),
            json!({"batchItemFailures": [{"ItemIdentifier": "a"}]}),
            json!({"batchItemFailures": [{"itemIdentifier": ""}]}),
            json!({"batchItemFailures": [{"itemIdentifier": null}]}),
            json!({"batchItemFailures": [{"itemIdentifier": "nobody"}]}),
            json!({"batchItemFailures": [{"itemIdentifier": "a"}, {}]}),
        ] {
            assert_eq!(failed(response.clone()), None, "{response}");
        }
    }

    #[test]
    fn a_message_is_read_back_from_its_event() {
        let message = Message {
            id: "m".to_owned(),
            receipt: Some("r".to_owned()),
            body: Some("{\"a\":\"é\"}".to_owned()),
            attributes: [
                ("job".to_owned(), Attribute::text("j")),
                (
                    "trace".to_owned(),
                    Attribute {
                        data_type: "Binary".to_owned(),
                        value: AttributeValue::Binary(vec![0, 255]),
                    },
                ),
            ]
            .into(),
            sent_at: Some(Timestamp::from_millis(5)),
            group: Some("g".to_owned()),
            asks: None,
            source_arn: Some("arn:aws:sqs:local:0:q.fifo".to_owned()),
            xray: None,
            fault: None,
        };
        let read = crate::front::messages(&event(std::slice::from_ref(&message))).unwrap();
        assert!(read == [message]);
    }
}
