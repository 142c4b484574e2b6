//! Jobs of a jobs file against a real HTTP server: what is sent, and how answers are told apart.

#![cfg(feature = "jobs-file")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod guarantees;
mod messages;
mod receiver;
#[cfg(feature = "secrets")]
mod secrets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::handler::Router;
use onlyonce::protocol::{IdempotencyKey, RecordId, Status};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::service::{Deadline, Delivery, Ending, Outcome, Worker};
use onlyonce::store::{MemoryStore, Store};

use receiver::Receiver;

const EMPTY: &str = "\r\ncontent-length: 0\r\n\r\n";

struct Jobs {
    worker: Worker,
    store: Arc<dyn Store>,
}

impl Jobs {
    /// A worker with one job, `job`, of these lines; `PORT` is the receiver's.
    fn new(lines: &str, receiver: &Receiver) -> Self {
        Self::at(Arc::new(SystemClock), lines, receiver)
    }

    fn at(clock: Arc<dyn Clock>, lines: &str, receiver: &Receiver) -> Self {
        let lines = lines.replace("PORT", &receiver.port.to_string());
        let file = TempFile::with(&format!("[job.job]\neffect = \"http\"\n{lines}\n"));
        let jobs = Router::from_jobs_file(&file.0).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        // One clock: there is no margin to wait for.
        let worker = Worker::builder(store.clone()).clock(clock).skew(Duration::ZERO);
        let worker = worker.build(jobs).unwrap();
        Self { worker, store }
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
        self.worker.handle(delivery, Deadline::new(now, now + Duration::from_secs(30))).await
    }
}

struct TempFile(PathBuf);

impl TempFile {
    fn with(text: &str) -> Self {
        let name = format!("jobs-{:016x}.toml", fastrand::Rng::new().u64(..));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const KEYED: &str = "guarantee = \"keyed\"\nurl = \"http://127.0.0.1:PORT/v1/charges/{id}\"\n\
    allow_hosts = [\"127.0.0.1\"]\nretry = { policy = \"fixed\", delay = \"0s\", attempts = 9 }\n";

fn keyed(more: &str) -> String {
    format!("{KEYED}{more}")
}

#[tokio::test]
async fn a_keyed_request_carries_the_effects_key_and_the_same_bytes_each_time() {
    let receiver = Receiver::start(&[&format!("503 Busy{EMPTY}"), "hang up"]).await;
    let jobs = Jobs::new(&keyed("key_header = \"X-Once\""), &receiver);
    for body in ["{\"id\":7,\"a\":1}", "{ \"a\":1, \"id\":7 }", "{\"id\":7,\"a\":1}"] {
        jobs.run("k", body).await;
    }
    let seen = receiver.seen();
    assert_eq!(seen.len(), 3);
    let key = IdempotencyKey::new("k").unwrap();
    let id = RecordId::new("default", "job", &key);
    let record = jobs.store.load(&id).await.unwrap().unwrap();
    for request in &seen {
        assert_eq!(request.line, "POST /v1/charges/7 HTTP/1.1");
        assert_eq!(request.header("x-once"), Some(record.effect_key("http").as_str()));
        assert_eq!(request.body, "{\"a\":1,\"id\":7}");
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
    assert_eq!((record.status, record.attempt), (Status::Completed, 3));
}

#[tokio::test]
async fn a_form_a_raw_body_and_a_secret_are_sent_as_declared() {
    let receiver = Receiver::start(&[]).await;
    let path = std::env::var("PATH").unwrap();
    let secret = "secret = { header = \"Authorization\", env = \"PATH\" }";
    let jobs = Jobs::new(&keyed(&format!("body = \"form\"\n{secret}")), &receiver);
    jobs.run("form", "{\"id\":7,\"meta\":{\"n\":[1]}}").await;

    let url = "guarantee = \"at-least-once\"\nurl = \"http://127.0.0.1:PORT/\"\n";
    let raw = format!("{url}method = \"PUT\"\nbody = \"raw\"\nallow_hosts = [\"127.0.0.1\"]");
    let jobs = Jobs::new(&raw, &receiver);
    let outcome = jobs.run("raw", "no json, just text").await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");

    let seen = receiver.seen();
    assert_eq!(seen[0].body, "id=7&meta%5Bn%5D%5B0%5D=1");
    assert_eq!(seen[0].header("authorization"), Some(path.as_str()));
    assert_eq!(seen[1].body, "no json, just text");
    assert_eq!(seen[1].line, "PUT / HTTP/1.1");
    assert_eq!(seen[1].header("idempotency-key"), None);
}

#[tokio::test]
async fn each_status_ends_as_declared() {
    for (status, retries) in [
        ("408 Timeout", true),
        ("409 Conflict", true),
        ("425 Early", true),
        ("429 Slow Down", true),
        ("500 Oops", true),
        ("503 Busy", true),
        ("400 Bad", false),
        ("404 Gone", false),
        ("422 No", false),
        ("302 Found", false),
    ] {
        let receiver = Receiver::start(&[&format!("{status}{EMPTY}")]).await;
        let outcome = Jobs::new(KEYED, &receiver).run("k", "{\"id\":7}").await;
        let is_retried = matches!(outcome.ending, Ending::Released(_));
        let is_failed = matches!(outcome.ending, Ending::Failed(_));
        assert_eq!((is_retried, is_failed), (retries, !retries), "{status}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let receiver =
        Receiver::start(&["307 Over There\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"])
            .await;
    let outcome = Jobs::new(KEYED, &receiver).run("k", "{\"id\":7}").await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn retry_after_is_kept() {
    let answer = "429 Slow\r\nretry-after: 120\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(&[answer]).await;
    let jobs = Jobs::new(KEYED, &receiver);
    let asked = jobs.worker.clock().now();
    let Ending::Released(at) = jobs.run("k", "{\"id\":7}").await.ending else { panic!("released") };
    let wait = at.since(asked).as_secs();
    assert!((120..130).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_silent_target_is_given_up_after_the_timeout() {
    let receiver = Receiver::start(&["silence"]).await;
    let jobs = Jobs::new(&keyed("timeout = \"300ms\""), &receiver);
    let outcome = jobs.run("k", "{\"id\":7}").await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
}

#[tokio::test]
async fn private_targets_are_refused_by_address_and_by_name() {
    let receiver = Receiver::start(&[]).await;
    for host in ["127.0.0.1", "localhost", "0x7f.1", "[::1]"] {
        let job = format!("guarantee = \"keyed\"\nurl = \"http://{host}:PORT/\"");
        let outcome = Jobs::new(&job, &receiver).run("k", "{}").await;
        assert!(matches!(outcome.ending, Ending::Failed(_)), "{host}: {outcome:?}");
        assert!(outcome.error.unwrap().contains("allow_hosts"), "{host}");
    }
    let job = "guarantee = \"keyed\"\nurl = \"http://localhost:PORT/\"\n\
        allow_hosts = [\"localhost\"]";
    let outcome = Jobs::new(job, &receiver).run("k", "{}").await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn a_large_answer_is_done_and_not_kept() {
    let large = format!("200 OK\r\ncontent-length: 100000\r\n\r\n{}", "x".repeat(100_000));
    let receiver = Receiver::start(&[&large, "201 Created\r\ncontent-length: 50\r\n\r\ncut"]).await;
    let jobs = Jobs::new(KEYED, &receiver);
    // Broken off in the middle, too: the status has said that it happened.
    for key in ["large", "cut"] {
        let outcome = jobs.run(key, "{\"id\":7}").await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn errors_name_no_url_and_no_payload() {
    let receiver = Receiver::start(&["hang up"]).await;
    let outcome = Jobs::new(KEYED, &receiver).run("k", "{\"id\":\"4242\"}").await;
    let error = outcome.error.unwrap();
    assert!(!error.contains("4242") && !error.contains("charges"), "{error}");
}

/// Jobs of the file and jobs of one's own stand in one router; a handler may take the payload whole.
#[tokio::test]
async fn declared_jobs_and_own_ones_mix() {
    let receiver = Receiver::start(&[]).await;
    let lines = KEYED.replace("PORT", &receiver.port.to_string());
    let file = TempFile::with(&format!("[job.job]\neffect = \"http\"\n{lines}\n"));
    let own = async |payload: onlyonce::Payload, _: onlyonce::Context| {
        Ok::<_, onlyonce::HandlerError>(payload.text().len())
    };
    let router = Router::from_jobs_file(&file.0).unwrap().job("own", own);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let worker = Worker::builder(store.clone()).build(router).unwrap();
    let jobs = Jobs { worker, store };
    let declared = jobs.run("k", "{\"id\":7}").await;
    assert!(matches!(declared.ending, Ending::Completed(_)), "{declared:?}");
    let now = jobs.worker.clock().now();
    let delivery = Delivery {
        job: "own".to_owned(),
        key: IdempotencyKey::new("k").unwrap(),
        body: "[1, 2]".to_owned(),
        message_id: None,
        enqueued_at: None,
        unique: None,
    };
    let deadline = Deadline::new(now, now + Duration::from_secs(30));
    let own = jobs.worker.handle(delivery, deadline).await;
    assert!(matches!(&own.ending, Ending::Completed(output)
        if *output == onlyonce::protocol::Output::Stored("6".to_owned())));
}
