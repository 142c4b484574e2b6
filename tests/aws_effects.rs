//! The effects that call AWS, from a jobs file: what arrives, under which key, and what is refused.

#![cfg(feature = "aws-effects")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use onlyonce::config::Faults;
use onlyonce::protocol::{EffectKey, IdempotencyKey, RecordId, Status};
use onlyonce::runtime::SystemClock;
use onlyonce::service::{Deadline, Delivery, Ending, Outcome, Worker};
use onlyonce::store::{MemoryStore, Store};
use onlyonce::{Router, sdk};

struct TempFile(PathBuf);

impl TempFile {
    fn with(text: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique("jobs") + ".toml");
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unique(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::Rng::new().u64(..))
}

fn read(lines: &str) -> Result<Router, Faults> {
    let file = TempFile::with(&format!("[job.job]\n{lines}\n"));
    Router::from_jobs_file(&file.0)
}

fn faults(lines: &str) -> String {
    read(lines).err().map(|faults| faults.to_string()).unwrap_or_default()
}

/// One job on a store of its own.
struct Kit {
    worker: Worker,
    store: Arc<dyn Store>,
}

impl Kit {
    fn new(lines: &str) -> Self {
        Self::on(Arc::new(MemoryStore::new()), lines)
    }

    fn on(store: Arc<dyn Store>, lines: &str) -> Self {
        let clock = Arc::new(SystemClock);
        let worker = Worker::builder(store.clone()).clock(clock).build(read(lines).unwrap());
        Self { worker: worker.unwrap(), store }
    }

    async fn run(&self, key: &str, body: &str) -> Outcome {
        let now = self.worker.clock().now();
        let delivery = Delivery {
            job: "job".to_owned(),
            key: IdempotencyKey::new(key).unwrap(),
            body: body.to_owned(),
            message_id: None,
            enqueued_at: Some(now),
            unique: None,
        };
        self.worker.handle(delivery, Deadline::new(now, now + Duration::from_secs(20))).await
    }

    async fn status(&self, key: &str) -> Status {
        self.store.load(&id(key)).await.unwrap().unwrap().status
    }
}

fn id(key: &str) -> RecordId {
    RecordId::new("default", "job", &IdempotencyKey::new(key).unwrap())
}

fn assert_completed(outcome: &Outcome) {
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
}

/// A queue of its own, and what arrives in it.
struct Queue {
    sqs: aws_sdk_sqs::Client,
    url: String,
}

impl Queue {
    async fn new(is_fifo: bool) -> Self {
        let sqs = aws_sdk_sqs::Client::new(&sdk::load().await);
        let made = match is_fifo {
            true => sqs
                .create_queue()
                .queue_name(unique("q") + ".fifo")
                .attributes(QueueAttributeName::FifoQueue, "true"),
            false => sqs.create_queue().queue_name(unique("q")),
        };
        let url = made.send().await.unwrap().queue_url.unwrap();
        Self { sqs, url }
    }

    async fn arn(&self) -> String {
        let asked = self.sqs.get_queue_attributes().queue_url(&self.url);
        let asked = asked.attribute_names(QueueAttributeName::QueueArn).send().await.unwrap();
        asked.attributes.unwrap()[&QueueAttributeName::QueueArn].clone()
    }

    /// All that is in it, taken out. What was sent is there: it is sent before its job ends.
    async fn taken(&self) -> Vec<Message> {
        let mut taken = Vec::new();
        loop {
            let asked = self.sqs.receive_message().queue_url(&self.url).wait_time_seconds(1);
            let asked = asked.max_number_of_messages(10).message_attribute_names("All");
            let asked = asked.message_system_attribute_names(MessageSystemAttributeName::All);
            let messages = asked.send().await.unwrap().messages.unwrap_or_default();
            if messages.is_empty() {
                return taken;
            }
            for message in messages {
                let handle = message.receipt_handle.as_deref().unwrap();
                let done = self.sqs.delete_message().queue_url(&self.url).receipt_handle(handle);
                done.send().await.unwrap();
                taken.push(message);
            }
        }
    }
}

fn attribute<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.message_attributes.as_ref()?.get(name)?.string_value.as_deref()
}

fn system(message: &Message, name: MessageSystemAttributeName) -> Option<&str> {
    message.attributes.as_ref()?.get(&name).map(String::as_str)
}

#[tokio::test]
async fn a_message_carries_the_payload_the_effects_key_and_the_next_job() {
    let queue = Queue::new(false).await;
    for guarantee in ["at-least-once", "at-most-once", "keyed"] {
        let more = if guarantee == "keyed" { "deduplicated_by = \"consumer\"" } else { "" };
        let kit = Kit::new(&format!(
            "effect = \"sqs\"\nguarantee = \"{guarantee}\"\nqueue_url = \"{}\"\njob = \"next\"\n{more}",
            queue.url
        ));
        for _ in 0..3 {
            kit.run("k", "{\"b\": 1, \"a\": 2}").await;
        }
        let messages = queue.taken().await;
        let [message] = messages.as_slice() else { panic!("{guarantee}: {messages:?}") };
        assert_eq!(message.body.as_deref(), Some("{\"a\":2,\"b\":1}"));
        let key = EffectKey::new(&id("k"), "sqs", 0);
        assert_eq!(attribute(message, "idempotency-key"), Some(key.as_str()));
        assert_eq!(attribute(message, "job"), Some("next"));
        assert_eq!(kit.status("k").await, Status::Completed);
    }
}

#[tokio::test]
async fn a_fifo_queue_gets_the_key_as_its_deduplication_id_and_takes_a_second_send_for_the_first() {
    let queue = Queue::new(true).await;
    let lines = format!(
        "effect = \"sqs\"\nguarantee = \"keyed\"\nqueue_url = \"{}\"\ngroup = \"c-{{customer}}\"",
        queue.url
    );
    // Two stores: the second worker knows nothing of what the first has sent, as after a crash.
    for _ in 0..2 {
        assert_completed(&Kit::new(&lines).run("k", "{\"customer\": 7}").await);
    }
    let messages = queue.taken().await;
    let [message] = messages.as_slice() else { panic!("{messages:?}") };
    let key = EffectKey::new(&id("k"), "sqs", 0);
    let deduplicated = system(message, MessageSystemAttributeName::MessageDeduplicationId);
    assert_eq!(deduplicated, Some(key.as_str()));
    assert_eq!(system(message, MessageSystemAttributeName::MessageGroupId), Some("c-7"));
}

#[tokio::test]
async fn a_raw_body_is_sent_as_it_came() {
    let queue = Queue::new(false).await;
    let kit = Kit::new(&format!(
        "effect = \"sqs\"\nguarantee = \"at-least-once\"\nqueue_url = \"{}\"\nbody = \"raw\"",
        queue.url
    ));
    assert_completed(&kit.run("k", "no json,  just text").await);
    assert_eq!(queue.taken().await[0].body.as_deref(), Some("no json,  just text"));
}

#[tokio::test]
async fn what_aws_refuses_has_done_nothing_and_is_terminal_under_each_guarantee() {
    for guarantee in ["at-least-once", "at-most-once"] {
        for (effect, error) in [
            (
                "effect = \"sqs\"\nqueue_url = \"https://sqs.us-east-1.amazonaws.com/0/none\"",
                "Queue",
            ),
            (
                "effect = \"sns\"\ntopic_arn = \"arn:aws:sns:us-east-1:000000000000:none\"",
                "NotFound",
            ),
            ("effect = \"lambda\"\nfunction = \"none\"", "ResourceNotFound"),
        ] {
            let kit = Kit::new(&format!("guarantee = \"{guarantee}\"\n{effect}"));
            let outcome = kit.run("k", "{}").await;
            assert!(matches!(outcome.ending, Ending::Failed(_)), "{effect}: {outcome:?}");
            assert!(outcome.error.as_ref().unwrap().contains(error), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_terminal_and_nothing_is_sent() {
    let queue = Queue::new(true).await;
    let kit = Kit::new(&format!(
        "effect = \"sqs\"\nguarantee = \"at-most-once\"\nqueue_url = \"{}\"\ngroup = \"{{customer}}\"",
        queue.url
    ));
    for (key, body) in [("a", "{}"), ("b", "{\"customer\": \"4242 4242\"}")] {
        let outcome = kit.run(key, body).await;
        assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
        let error = outcome.error.unwrap();
        assert!(error.contains("group") && !error.contains("4242"), "{error}");
    }
    let event = "effect = \"eventbridge\"\nguarantee = \"at-most-once\"\nbus = \"default\"\n\
        source = \"shop\"\ndetail_type = \"Sold\"";
    let outcome = Kit::new(event).run("k", "[1]").await;
    assert!(outcome.error.as_ref().unwrap().contains("JSON object"), "{outcome:?}");
    assert!(queue.taken().await.is_empty());
}

#[tokio::test]
async fn the_jobs_own_key_is_passed_on_where_that_is_asked_for() {
    let (sdk, queue) = (sdk::load().await, Queue::new(false).await);
    let sns = aws_sdk_sns::Client::new(&sdk);
    let topic = sns.create_topic().name(unique("t")).send().await.unwrap().topic_arn.unwrap();
    let subscribed = sns.subscribe().topic_arn(&topic).protocol("sqs");
    let subscribed = subscribed.endpoint(queue.arn().await);
    subscribed.attributes("RawMessageDelivery", "true").send().await.unwrap();
    for target in [
        format!("effect = \"sqs\"\nqueue_url = \"{}\"", queue.url),
        format!("effect = \"sns\"\ntopic_arn = \"{topic}\""),
    ] {
        let kit = Kit::new(&format!("{target}\nguarantee = \"at-least-once\"\npass_key = true"));
        assert_completed(&kit.run("order-42", "{}").await);
        let messages = queue.taken().await;
        let [message] = messages.as_slice() else { panic!("{target}: {messages:?}") };
        assert_eq!(attribute(message, "idempotency-key"), Some("order-42"));
    }
}

#[tokio::test]
async fn a_topic_publishes_with_the_key_and_a_fifo_one_takes_a_second_time_for_the_first() {
    let sns = aws_sdk_sns::Client::new(&sdk::load().await);
    for is_fifo in [false, true] {
        let queue = Queue::new(is_fifo).await;
        let mut made = sns.create_topic().name(unique("t"));
        if is_fifo {
            made = sns.create_topic().name(unique("t") + ".fifo").attributes("FifoTopic", "true");
        }
        let topic = made.send().await.unwrap().topic_arn.unwrap();
        let subscribed = sns.subscribe().topic_arn(&topic).protocol("sqs");
        let subscribed = subscribed.endpoint(queue.arn().await);
        subscribed.attributes("RawMessageDelivery", "true").send().await.unwrap();
        let more = match is_fifo {
            true => "guarantee = \"keyed\"\ngroup = \"{sku}\"",
            false => "guarantee = \"at-least-once\"\nsubject = \"Sold: {sku}\"",
        };
        let lines = format!("effect = \"sns\"\ntopic_arn = \"{topic}\"\njob = \"next\"\n{more}");
        for _ in 0..if is_fifo { 2 } else { 1 } {
            assert_completed(&Kit::new(&lines).run("k", "{\"sku\": \"x\"}").await);
        }
        let messages = queue.taken().await;
        let [message] = messages.as_slice() else { panic!("{is_fifo}: {messages:?}") };
        let key = EffectKey::new(&id("k"), "sns", 0);
        assert_eq!(message.body.as_deref(), Some("{\"sku\":\"x\"}"));
        assert_eq!(attribute(message, "idempotency-key"), Some(key.as_str()));
        assert_eq!(attribute(message, "job"), Some("next"));
    }
}

#[tokio::test]
async fn an_event_has_the_payload_as_its_detail_and_the_key_in_it() {
    let (sdk, queue) = (sdk::load().await, Queue::new(false).await);
    let events = aws_sdk_eventbridge::Client::new(&sdk);
    let bus = unique("bus");
    events.create_event_bus().name(&bus).send().await.unwrap();
    let rule = events.put_rule().name("all").event_bus_name(&bus);
    rule.event_pattern("{\"source\":[\"shop.orders\"]}").send().await.unwrap();
    let target = aws_sdk_eventbridge::types::Target::builder().id("q").arn(queue.arn().await);
    let target = target.build().unwrap();
    events.put_targets().rule("all").event_bus_name(&bus).targets(target).send().await.unwrap();

    let lines = format!(
        "effect = \"eventbridge\"\nguarantee = \"at-least-once\"\nbus = \"{bus}\"\n\
         source = \"shop.orders\"\ndetail_type = \"OrderShipped\"\n"
    );
    assert_completed(&Kit::new(&(lines.clone() + "pass_key = true")).run("order-42", "{}").await);
    let messages = queue.taken().await;
    let event: serde_json::Value = serde_json::from_str(messages[0].body().unwrap()).unwrap();
    assert_eq!(event["detail"]["idempotency-key"], "order-42");
    let kit = Kit::new(&lines);
    for body in ["{\"order\": 7}", "{\"order\": 8, \"idempotency-key\": \"own\"}"] {
        assert_completed(&kit.run(body, body).await);
        assert!(matches!(kit.run(body, body).await.ending, Ending::Replayed(_)));
        let messages = queue.taken().await;
        let [message] = messages.as_slice() else { panic!("{messages:?}") };
        let event: serde_json::Value = serde_json::from_str(message.body().unwrap()).unwrap();
        assert_eq!(event["source"], "shop.orders");
        assert_eq!(event["detail-type"], "OrderShipped");
        let mut detail: serde_json::Value = serde_json::from_str(body).unwrap();
        if detail["idempotency-key"].is_null() {
            detail["idempotency-key"] = EffectKey::new(&id(body), "eventbridge", 0).as_str().into();
        }
        assert_eq!(event["detail"], detail);
    }
}

#[test]
fn a_guarantee_out_of_reach_is_a_fault_that_names_those_within_and_why() {
    let standard = "effect = \"sqs\"\nqueue_url = \"http://localhost/0/q\"\n";
    let fifo = "effect = \"sqs\"\nqueue_url = \"http://localhost/0/q.fifo\"\ngroup = \"{a}\"\n";
    let topic = "effect = \"sns\"\ntopic_arn = \"arn:aws:sns:us-east-1:0:t\"\n";
    let event = "effect = \"eventbridge\"\nbus = \"b\"\nsource = \"s\"\ndetail_type = \"d\"\n";
    let function = "effect = \"lambda\"\nfunction = \"f\"\n";
    let keyed = "guarantee = \"keyed\"\n";
    for (lines, said) in [
        (format!("{event}{keyed}"), "EventBridge itself remembers no key"),
        (format!("{event}{keyed}"), "\"at-most-once\" (what may have happened"),
        (format!("{standard}{keyed}"), "add deduplicated_by = \"consumer\""),
        (format!("{topic}{keyed}"), "a standard topic remembers no key"),
        (format!("{standard}{keyed}deduplicated_by = \"me\""), "write \"consumer\""),
        (format!("{fifo}{keyed}key_window = \"1h\""), "five minutes"),
        (format!("{standard}guarantee = \"reconcile\""), "cannot give guarantee \"reconcile\""),
        (format!("{function}guarantee = \"transactional\""), "\"keyed\" (the function runs"),
        (function.to_owned(), "no guarantee is named"),
        (format!("{function}guarantee = \"at-least-once\"\nkey_window = \"1h\""), "go with"),
        (format!("{function}{keyed}key_window = \"99d\""), "is shorter than key_window"),
        (
            format!("{standard}guarantee = \"at-least-once\"\ndeduplicated_by = \"consumer\""),
            "deduplicated_by and key_window go with",
        ),
    ] {
        let faults = faults(&lines);
        assert!(faults.contains(said), "{lines}\n{faults}");
    }
}

#[test]
fn a_fault_says_where_and_what_to_write_instead() {
    let once = "guarantee = \"at-least-once\"\n";
    for (lines, said) in [
        ("effect = \"sqs\"", "add queue_url = \"https://sqs."),
        ("effect = \"sqs\"\nqueue_url = \"orders\"", "is no queue's URL"),
        ("effect = \"sqs\"\nqueue_url = \"https://x/{q}\"", "not for the payload to choose"),
        ("effect = \"sqs\"\nqueue_url = \"http://x/q.fifo\"", "add group = \"{customer_id}\""),
        ("effect = \"sqs\"\nqueue_url = \"http://x/q\"\ngroup = \"{\"", "group: "),
        ("effect = \"sqs\"\nqueue_url = \"http://x/q\"\nbody = \"form\"", "\"json\" or \"raw\""),
        ("effect = \"sqs\"\nqueue_url = \"http://x/q\"\njob = \"\"", "no job is given"),
        ("effect = \"sns\"\ntopic_arn = \"arn:aws:sqs:x:0:q\"", "is no topic's ARN"),
        ("effect = \"lambda\"", "add function = "),
        ("effect = \"lambda\"\nfunction = \"f\"\nmethod = \"GET\"", "unknown field `method`"),
        ("effect = \"eventbridge\"\nbus = \"b\"\nsource = \"s\"", "add detail_type = "),
    ] {
        let faults = faults(&format!("{once}{lines}"));
        assert!(faults.contains(said), "{lines}\n{faults}");
    }
}

#[test]
fn what_each_effect_gives_is_read() {
    for lines in [
        "effect = \"lambda\"\nfunction = \"f\"\nqualifier = \"live\"\nguarantee = \"keyed\"",
        "effect = \"lambda\"\nfunction = \"f\"\nguarantee = \"keyed\"\nkey_window = \"1h\"",
        "effect = \"lambda\"\nfunction = \"f\"\nguarantee = \"at-most-once\"\nbody = \"raw\"",
        "effect = \"sqs\"\nqueue_url = \"http://x/0/q\"\nguarantee = \"keyed\"\n\
            deduplicated_by = \"consumer\"\nkey_window = \"45d\"",
        "effect = \"sns\"\ntopic_arn = \"arn:aws:sns:x:0:t.fifo\"\nguarantee = \"keyed\"\n\
            group = \"g\"\nsubject = \"Order {id}\"",
        "effect = \"eventbridge\"\nbus = \"arn:aws:events:x:0:event-bus/b\"\nsource = \"s\"\n\
            detail_type = \"d\"\nguarantee = \"at-most-once\"\ntimeout = \"3s\"",
    ] {
        assert_eq!(faults(lines), "", "{lines}");
    }
}

#[test]
fn the_examples_of_the_page_are_fine() {
    let page = include_str!("../src/docs/effects.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let of_aws = |block: &&str| {
        ["lambda", "sqs", "sns", "eventbridge"]
            .iter()
            .any(|effect| block.contains(&format!("effect = \"{effect}\"")))
    };
    let examples: Vec<_> = blocks.filter(of_aws).collect();
    assert_eq!(examples.len(), 4);
    for example in examples {
        let file = TempFile::with(example);
        let read = Router::from_jobs_file(&file.0);
        assert!(read.is_ok(), "{example}\n{}", read.err().unwrap());
    }
}
