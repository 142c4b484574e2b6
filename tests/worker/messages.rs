//! Messages of other services, from their real bodies to the records they leave.

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::front::{ATTRIBUTE_KEY, Attribute};
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{Output, Status};
use onlyonce::rules::{MessageRules, Unwrap};
use onlyonce::service::{Ending, Worker};
use onlyonce::store::MemoryStore;
use serde_json::Value;

use crate::kit::{Kit, SECOND, delivery, message};

const NONE: [&str; 0] = [];

/// A worker by these rules, with the job `text` beside the usual ones: it answers its raw body.
fn kit(rules: MessageRules) -> Kit {
    Kit::with([], |router, runs| {
        let runs = runs.clone();
        let text = Job::new("text", move |text: String, _: Context| {
            let runs = runs.clone();
            async move {
                runs.one_more();
                Ok::<_, HandlerError>(text)
            }
        });
        router.with(text.raw()).messages(rules)
    })
}

fn at(path: &'static str) -> impl Fn(&Value) -> Value {
    move |body| body.pointer(path).cloned().unwrap_or(Value::Null)
}

#[tokio::test(start_paused = true)]
async fn copies_of_an_eventbridge_event_run_once_under_its_id() {
    let rules = MessageRules::new().unwrap(Unwrap::EventBridge);
    let kit = kit(rules.key_from(at("/id")).default_job("echo"));
    let event = include_str!("../fixtures/eventbridge.json");
    let batch = [message("one", "", "", event), message("two", "", "", event)];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!(kit.runs.count(), 1);
    let record = kit.record("echo", "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa").await.unwrap();
    assert_eq!(record.status, Status::Completed);
    let detail = r#"{"currency":"eur","order":{"id":"o-1001","total":4990}}"#;
    assert_eq!(record.output, Some(Output::Stored(detail.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_enveloped_text_reaches_a_raw_job_as_it_is() {
    let kit = kit(MessageRules::new().unwrap(Unwrap::Envelope));
    let body = include_str!("../fixtures/envelope_text.json").replace("order.place", "text");
    assert_eq!(kit.batch(&[message("m", "", "", &body)], SECOND * 60).await, NONE);
    let record = kit.record("text", "1001").await.unwrap();
    assert_eq!(record.output, Some(Output::Stored("\"sku;count\\nA-7;2\\n\"".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_opened_is_quarantined_as_it_came_beside_what_can() {
    let rules = MessageRules::new().unwrap(Unwrap::Sns).unwrap(Unwrap::S3);
    let kit = kit(rules.key_from(at("/s3/object/sequencer")).default_job("echo"));
    let batch = [
        message("put", "", "", include_str!("../fixtures/sns_s3_put.json")),
        message("several", "", "", include_str!("../fixtures/s3_two_records.json")),
        message("test", "", "", include_str!("../fixtures/sns_s3_test_event.json")),
        message("pointer", "echo", "k", include_str!("../fixtures/extended_client_pointer.json")),
        message("no sequencer", "", "", r#"{"Records":[{"s3":{"object":{}}}]}"#),
        message("no notification", "", "", "{}"),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!((kit.runs.count(), kit.store.commits()), (1, 2));
    let mut causes = kit.queue.causes();
    causes.sort();
    let undecodable = ["no notification", "no sequencer", "pointer", "several"];
    assert_eq!(causes, undecodable.map(|id| (id.to_owned(), "undecodable".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_key_expression_never_stands_in_for_an_attribute_that_is_there() {
    let kit = kit(MessageRules::new().key_from(at("/id")).job_from(at("/do")));
    let body = r#"{"id":"from the body","do":"echo"}"#;
    let batch = [message("named", "text", "by hand", body), message("derived", "", "", body)];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert!(kit.record("text", "by hand").await.is_some());
    assert!(kit.record("echo", "from the body").await.is_some());
    let mut empty = message("empty", "echo", "", body);
    empty.attributes.insert(ATTRIBUTE_KEY.to_owned(), Attribute::text(""));
    assert_eq!(kit.batch(&[empty], SECOND * 60).await, NONE);
    assert_eq!(kit.queue.causes(), [("empty".to_owned(), "undecodable".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn payloads_of_one_key_may_differ_where_nobody_compares() {
    let answer = |payload: Value, _: Context| async move { Ok::<_, HandlerError>(payload) };
    let kit = Kit::with([], |router, _| {
        router
            .with(Job::new("fields", answer).fingerprint_fields(["amount", "currency"]))
            .with(Job::new("off", answer).fingerprint_off())
    });
    let first = r#"{"amount":5,"sent_at":1}"#;
    for (job, body, is_same) in [
        ("fields", r#"{"amount":5,"sent_at":2}"#, true),
        ("fields", r#"{"amount":6,"sent_at":1}"#, false),
        ("fields", r#"{"amount":5,"currency":"eur"}"#, false),
        ("off", r#"{"amount":6}"#, true),
        ("echo", r#"{"amount":5,"sent_at":2}"#, false),
    ] {
        let ran = kit.handle(delivery(job, body, first)).await;
        assert!(matches!(ran.ending, Ending::Completed(_)), "{job}: {ran:?}");
        match kit.handle(delivery(job, body, body)).await.ending {
            Ending::Replayed(Output::Stored(output)) => {
                assert_eq!((is_same, &*output), (true, first))
            }
            Ending::Mismatch { .. } => assert!(!is_same, "{job} {body}"),
            other => panic!("{job} {body}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_default_job_that_is_not_there_is_refused_at_the_start() {
    let router = Router::new().messages(MessageRules::new().default_job("nobody"));
    let error = Worker::builder(MemoryStore::new()).build(router).unwrap_err().to_string();
    assert!(error.contains("\"nobody\""), "{error}");
}

#[test]
fn a_delivery_is_shown_without_its_payload_and_key() {
    let shown = format!("{:?}", delivery("echo", "user:42", "{\"card\":4242}"));
    assert!(shown.contains("echo") && !shown.contains("42"), "{shown}");
}
