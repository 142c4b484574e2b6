//! What a worker tells while it runs: metrics on its standard output, traces to a receiver.

use std::fs::File;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::types::MessageAttributeValue;
use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use onlyonce::protocol::{IdempotencyKey, RecordId};
use onlyonce::runtime::{Clock, SystemClock, Task, spawn};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::example;
use crate::poll::{Field, Polling, free_port, health};

#[tokio::test]
async fn metrics_are_told_at_the_end_and_counts_at_the_health_endpoint() {
    let field = Field::new("").await;
    let said = field.folder.0.join("said");
    let port = free_port();
    let mut worker = field.worker();
    worker.env("ONLYONCE_METRICS", "emf").env("ONLYONCE_SERVICE", "field");
    worker.env("ONLYONCE_HEALTH", format!("127.0.0.1:{port}"));
    let mut polling = Polling::started(worker.stdout(File::create(&said).unwrap()));
    field.send("note", "private-key", "{\"ms\":1,\"iban\":\"private-iban\"}").await;
    polling.until(&["outcome=\"completed\""]);
    field.send("note", "private-key", "{\"ms\":1,\"iban\":\"private-iban\"}").await;
    polling.until(&["outcome=\"replayed\""]);
    let (_, body) = health(port);
    assert_eq!(body["counts"]["Completed"], 1, "{body}");
    assert_eq!(body["counts"]["Replayed"], 1, "{body}");
    polling.signal("-TERM");
    assert!(polling.process.wait().unwrap().success());

    let said = std::fs::read_to_string(said).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert_eq!(lines[0]["_aws"]["CloudWatchMetrics"][0]["Namespace"], "onlyonce");
    assert_eq!(lines[0]["Service"], "field");
    let counts = ["Claimed", "Completed", "Replayed"].map(|name| lines[0][name].as_u64());
    assert_eq!(counts, [Some(1); 3]);
    let measured = |name: &str| lines[0][name].as_array().map(Vec::len);
    assert_eq!(measured("Age"), Some(1));
    assert_eq!(measured("EffectLatency"), Some(1));
    assert!(measured("StoreLatency") >= Some(3));
    assert!(!said.contains("private"), "{said}");
}

/// What was sent to it by OTLP.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Bytes>>>);

impl Received {
    /// Listens as long as the task is kept, and answers where.
    async fn listen(&self) -> (String, Task<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = self.clone();
        let keep = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            assert_eq!(headers["x-team"], "orders", "by OTEL_EXPORTER_OTLP_HEADERS");
            received.0.lock().unwrap().push(body);
        };
        let receiver = Router::new().route("/v1/traces", post(keep));
        (url, spawn(async move { axum::serve(listener, receiver).await.unwrap() }))
    }

    /// All spans, and whose they are.
    fn spans(&self) -> (Vec<Span>, Vec<String>) {
        let (mut spans, mut services) = (Vec::new(), Vec::new());
        for body in self.0.lock().unwrap().iter() {
            let request = ExportTraceServiceRequest::decode(body.clone()).unwrap();
            for of in request.resource_spans {
                let attributes = of.resource.unwrap().attributes;
                let service = attributes.iter().find(|it| it.key == "service.name").unwrap();
                services.push(shown(service.value.clone().unwrap().value));
                spans.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        (spans, services)
    }
}

fn shown(value: Option<Any>) -> String {
    match value {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    let found = found.unwrap_or_else(|| panic!("{name} is not in {span:?}"));
    shown(found.value.clone().unwrap().value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

// The receiver listens while this waits for the worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_span_per_attempt_in_its_producers_trace_or_in_that_of_its_key() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";
    let received = Received::default();
    let (endpoint, _listening) = received.listen().await;
    let field = Field::new("").await;
    let mut worker = field.worker();
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("ONLYONCE_SERVICE", "field");
    worker.env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=orders");
    let mut polling = Polling::started(worker.stdout(Stdio::null()));
    let text = |value: &str| {
        let text = MessageAttributeValue::builder().data_type("String").string_value(value);
        text.build().unwrap()
    };
    let send = field.client.send_message().queue_url(&field.url).message_body("{\"ms\":1}");
    let send = send.message_attributes("job", text("note"));
    let send = send.message_attributes("idempotency-key", text("private-key"));
    let send = send.message_attributes("traceparent", text(&format!("00-{TRACE}-{PARENT}-01")));
    send.send().await.unwrap();
    polling.until(&["outcome=\"completed\""]);
    field.send("explode", "private-bug", "{\"iban\":\"private-iban\"}").await;
    polling.until(&["outcome=\"released\""]);
    polling.until(&["outcome=\"failed\""]);
    polling.signal("-TERM");
    assert!(polling.process.wait().unwrap().success());

    let (spans, services) = received.spans();
    assert!(!services.is_empty() && services.iter().all(|name| name == "field"), "{services:?}");
    let id = |job: &str, key: &str| {
        RecordId::new("default", job, &IdempotencyKey::new(key).unwrap()).as_str().to_owned()
    };
    let named =
        |name: &str| spans.iter().filter(|span| span.name == name).cloned().collect::<Vec<_>>();

    let [note] = &named("job note")[..] else { panic!("{spans:?}") };
    assert_eq!((hex(&note.trace_id), hex(&note.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!(attribute(note, "onlyonce.job"), "note");
    assert_eq!(attribute(note, "onlyonce.key_digest"), id("note", "private-key"));
    assert_eq!(attribute(note, "onlyonce.attempt"), "1");
    assert_eq!(attribute(note, "onlyonce.token"), "1");
    assert_eq!(attribute(note, "onlyonce.outcome"), "completed");
    assert!(!is_error(note));
    let children: Vec<_> =
        spans.iter().filter(|span| span.parent_span_id == note.span_id).collect();
    let mut names: Vec<_> = children.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["effect note", "store write"]);
    assert!(children.iter().all(|span| hex(&span.trace_id) == TRACE && !is_error(span)));

    let attempts = named("job explode");
    assert_eq!(attempts.len(), 2);
    let mut numbers: Vec<_> = attempts.iter().map(|it| attribute(it, "onlyonce.attempt")).collect();
    numbers.sort();
    assert_eq!(numbers, ["1", "2"]);
    for attempt in &attempts {
        assert_eq!(hex(&attempt.trace_id), id("explode", "private-bug")[..32], "that of its key");
        assert!(attempt.parent_span_id.is_empty(), "no one is above it");
        assert!(is_error(attempt));
    }
    let bytes: Vec<u8> = received.0.lock().unwrap().iter().flatten().copied().collect();
    assert!(!bytes.windows(7).any(|part| part == b"private"), "no key and no payload");
}

#[tokio::test]
async fn a_receiver_that_never_answers_holds_up_neither_jobs_nor_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let field = Field::new("").await;
    let mut worker = field.worker();
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    let mut polling = Polling::started(worker.stdout(Stdio::null()));
    field.send("echo", "a", "{}").await;
    polling.until(&["outcome=\"completed\""]);
    polling.signal("-TERM");
    polling.until(&["traces were not sent"]);
    assert!(polling.process.wait().unwrap().success());
    assert_eq!(field.left().await, [0, 0], "all is deleted");
}

#[tokio::test]
async fn an_endpoint_that_is_none_is_told_of_and_the_worker_serves() {
    let field = Field::new("").await;
    let mut worker = field.worker();
    worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url");
    let mut polling = Polling::spawned(worker.stdout(Stdio::null()));
    polling.until(&["traces cannot be sent", "OTEL_EXPORTER_OTLP_"]);
    field.send("echo", "a", "{}").await;
    polling.until(&["outcome=\"completed\""]);
}

/// A worker in Lambda, which is invoked with one batch.
struct Invoked {
    process: Child,
    answers: mpsc::UnboundedReceiver<Value>,
    _api: Task<()>,
}

impl Invoked {
    /// Lambda's runtime API with one event, whose invocation ends after `takes` milliseconds.
    async fn new(event: Value, takes: u64, endpoint: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (answer, answers) = mpsc::unbounded_channel();
        let event = Arc::new(Mutex::new(Some(event)));
        let next = async move || {
            let Some(event) = event.lock().unwrap().take() else {
                return std::future::pending().await;
            };
            let deadline = (SystemClock.now().millis() + takes).to_string();
            let head = [
                ("lambda-runtime-aws-request-id", "one".to_owned()),
                ("lambda-runtime-deadline-ms", deadline),
                ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:x:0:function:f".to_owned()),
            ];
            (head, event.to_string())
        };
        let answered = async move |body: Bytes| {
            answer.send(serde_json::from_slice(&body).unwrap()).unwrap();
        };
        let api = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/one/response", post(answered));
        let address = listener.local_addr().unwrap().to_string();
        let api = spawn(async move { axum::serve(listener, api).await.unwrap() });
        let mut worker = example("field_worker");
        worker.env("AWS_LAMBDA_RUNTIME_API", address).env("AWS_LAMBDA_FUNCTION_NAME", "f");
        worker.env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128");
        worker.env("AWS_LAMBDA_FUNCTION_VERSION", "1").env("AWS_LAMBDA_LOG_STREAM_NAME", "s");
        worker.env("AWS_LAMBDA_LOG_GROUP_NAME", "g").env("ONLYONCE_STORE", "memory:");
        worker.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
        worker.env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=orders");
        let process = worker.stdout(Stdio::null()).spawn().unwrap();
        Self { process, answers, _api: api }
    }
}

impl Drop for Invoked {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn one_message() -> Value {
    let text = |value: &str| json!({ "stringValue": value, "dataType": "String" });
    json!({ "Records": [{
        "messageId": "m",
        "body": "{}",
        "attributes": {
            "AWSTraceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
        },
        "messageAttributes": { "job": text("echo"), "idempotency-key": text("k") },
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:q",
    }] })
}

#[tokio::test]
async fn in_lambda_spans_are_sent_before_the_answer() {
    let received = Received::default();
    let (endpoint, _listening) = received.listen().await;
    let mut invoked = Invoked::new(one_message(), 20_000, &endpoint).await;
    assert_eq!(invoked.answers.recv().await.unwrap(), json!({ "batchItemFailures": [] }));
    let (spans, services) = received.spans();
    assert!(services.iter().all(|name| name == "f"), "{services:?}");
    let job = spans.iter().find(|span| span.name == "job echo").unwrap();
    assert_eq!(hex(&job.trace_id), "5759e988bd862e3fe1be46a994272793");
    assert_eq!(hex(&job.parent_span_id), "53995c3f42cd8ad8");
    assert_eq!(spans.iter().filter(|span| span.parent_span_id == job.span_id).count(), 2);
}

#[tokio::test]
async fn in_lambda_a_receiver_that_never_answers_makes_no_answer_late() {
    const TAKES: u64 = 1_500;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let mut invoked = Invoked::new(one_message(), TAKES, &endpoint).await;
    let (_sending, _) = silent.accept().await.unwrap();
    // From here on half of what was left at most.
    let late = SystemClock.now() + std::time::Duration::from_millis(TAKES);
    let answer = onlyonce::runtime::before(&SystemClock, late, invoked.answers.recv()).await;
    assert_eq!(answer.flatten().unwrap(), json!({ "batchItemFailures": [] }));
}
