//! A worker outside Lambda, on a real queue: it serves, renews what it holds, and stops when it is
//! told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use onlyonce::protocol::{IdempotencyKey, Record, RecordId, Status};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::sdk;
use onlyonce::store::{SqliteStore, Store};

use crate::{Folder, example};

pub struct Polling {
    pub process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Polling {
    fn start(command: &mut Command) -> Self {
        Self::started(command.stdout(Stdio::null()))
    }

    pub fn started(command: &mut Command) -> Self {
        let mut polling = Self::spawned(command);
        polling.until(&["polling"]);
        polling
    }

    pub fn spawned(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Reads log lines until one contains all of `words`.
    pub fn until(&mut self, words: &[&str]) {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if words.iter().all(|word| line.contains(word)) {
                return;
            }
        }
        panic!("it ended without a line with {words:?}");
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A queue, a store that workers share, and the file that `note` writes to.
pub struct Field {
    pub client: Client,
    pub url: String,
    pub folder: Folder,
    store: SqliteStore,
}

impl Field {
    /// A queue that hides messages for two seconds at a time.
    pub async fn new(suffix: &str) -> Self {
        let client = Client::new(&sdk::load().await);
        let name = format!("poll-{:016x}{suffix}", fastrand::Rng::new().u64(..));
        let create = client.create_queue().queue_name(name);
        let mut create = create.attributes(QueueAttributeName::VisibilityTimeout, "2");
        if !suffix.is_empty() {
            create = create.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let url = create.send().await.unwrap().queue_url.unwrap();
        let folder = Folder::new();
        let store = SqliteStore::open(folder.0.join("records.db")).await.unwrap();
        Self { client, url, folder, store }
    }

    fn notes(&self) -> PathBuf {
        self.folder.0.join("notes")
    }

    pub fn worker(&self) -> Command {
        let mut worker = example("field_worker");
        let records = self.folder.0.join("records.db");
        worker.env("ONLYONCE_STORE", format!("sqlite:{}", records.display()));
        worker.env("ONLYONCE_QUEUE_URL", &self.url).env("NOTES", self.notes());
        worker
    }

    pub async fn send(&self, job: &str, key: &str, body: &str) {
        self.send_in(None, job, key, body).await;
    }

    async fn send_in(&self, group: Option<&str>, job: &str, key: &str, body: &str) {
        let text = |value: &str| {
            MessageAttributeValue::builder().data_type("String").string_value(value).build()
        };
        let send = self.client.send_message().queue_url(&self.url).message_body(body);
        let send = send.message_attributes("job", text(job).unwrap());
        let send = send.message_attributes("idempotency-key", text(key).unwrap());
        let send = send.set_message_group_id(group.map(ToOwned::to_owned));
        send.set_message_deduplication_id(group.map(|_| key.to_owned())).send().await.unwrap();
    }

    async fn record(&self, job: &str, key: &str) -> Option<Record> {
        let id = RecordId::new("default", job, &IdempotencyKey::new(key).unwrap());
        self.store.load(&id).await.unwrap()
    }

    async fn status(&self, job: &str, key: &str) -> Option<Status> {
        self.record(job, key).await.map(|record| record.status)
    }

    async fn until(&self, job: &str, keys: &[String], status: Status) {
        for key in keys {
            while self.status(job, key).await != Some(status) {
                pause().await;
            }
        }
    }

    /// Messages that can be received, and those that are hidden.
    pub async fn left(&self) -> [usize; 2] {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let asked = asked.set_attribute_names(Some(names.to_vec())).send().await.unwrap();
        let counts = asked.attributes.unwrap();
        names.map(|name| counts[&name].parse().unwrap())
    }

    /// What was noted, by job: under which keys, and how often.
    fn noted(&self) -> BTreeMap<String, (BTreeSet<String>, usize)> {
        let mut noted = BTreeMap::<String, (BTreeSet<String>, usize)>::new();
        for line in std::fs::read_to_string(self.notes()).unwrap_or_default().lines() {
            let (key, job) = line.split_once(' ').unwrap();
            let of = noted.entry(job.to_owned()).or_default();
            of.0.insert(key.to_owned());
            of.1 += 1;
        }
        noted
    }

    /// Twenty jobs of a worker that has begun them all: one takes far longer than its message is
    /// hidden at a time.
    async fn twenty_running(&self, worker: &mut Command) -> (Polling, Vec<String>) {
        let polling = Polling::start(worker);
        let keys: Vec<_> = (0..20).map(|n| format!("n-{n}")).collect();
        for key in &keys {
            let ms = if key == "n-7" { 8_000 } else { 4_000 };
            self.send("note", key, &format!("{{\"ms\":{ms}}}")).await;
        }
        for key in &keys {
            while self.status("note", key).await.is_none() {
                pause().await;
            }
        }
        (polling, keys)
    }
}

/// Between two looks at what another process does.
async fn pause() {
    SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(20)).await;
}

/// The status and the object that a worker's health endpoint answers.
pub fn health(port: u16) -> (u16, serde_json::Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn it_serves_a_queue_and_finishes_what_runs_when_told_to_stop() {
    let field = Field::new("").await;
    let mut polling = Polling::start(&mut field.worker());
    field.send("echo", "a", "{}").await;
    polling.until(&["outcome=\"completed\""]);
    field.send("echo", "a", "{}").await;
    polling.until(&["outcome=\"replayed\""]);

    field.send("slow", "b", "{\"ms\":1500}").await;
    while field.status("slow", "b").await.is_none() {
        pause().await;
    }
    polling.signal("-TERM");
    polling.until(&["outcome=\"completed\"", "slow"]);
    polling.until(&["stopped"]);
    assert!(polling.process.wait().unwrap().success());
    assert_eq!(field.status("slow", "b").await, Some(Status::Completed));
    assert_eq!(field.left().await, [0, 0], "all is deleted");
}

#[tokio::test]
async fn told_to_stop_with_twenty_jobs_it_loses_none_and_doubles_none() {
    let field = Field::new("").await;
    let port = free_port();
    let mut worker = field.worker();
    worker.env("ONLYONCE_HEALTH", format!("127.0.0.1:{port}"));
    let (mut polling, keys) = field.twenty_running(&mut worker).await;
    let (status, said) = health(port);
    assert_eq!((status, &said["status"], &said["running"]), (200, &"polling".into(), &20.into()));
    assert!(said["last_receive"].as_u64() >= said["polling_since"].as_u64());

    polling.signal("-TERM");
    polling.until(&["stopping"]);
    let (status, said) = health(port);
    assert_eq!((status, &said["status"]), (503, &"stopping".into()));
    field.send("note", "too-late", "{\"ms\":0}").await;
    polling.until(&["INFO", "stopped"]);
    assert!(polling.process.wait().unwrap().success());

    for key in &keys {
        let record = field.record("note", key).await.unwrap();
        assert_eq!((record.status, record.attempt), (Status::Completed, 1), "{key}");
    }
    let noted = field.noted();
    assert_eq!(noted.len(), 20);
    assert!(noted.values().all(|(_, times)| *times == 1), "{noted:?}");
    // What came too late waits, and nothing else is left. The receive that was broken off may have
    // hidden it once more.
    while field.left().await != [1, 0] {
        assert_eq!(field.left().await.iter().sum::<usize>(), 1);
        pause().await;
    }
    assert_eq!(field.status("note", "too-late").await, None);
}

#[tokio::test]
async fn killed_with_twenty_jobs_another_worker_does_them_under_their_keys() {
    let field = Field::new("").await;
    let (mut killed, keys) = field.twenty_running(&mut field.worker()).await;
    // Some have had their effects by then.
    while field.noted().is_empty() {
        pause().await;
    }
    killed.signal("-KILL");
    assert!(!killed.process.wait().unwrap().success());

    let mut polling = Polling::start(&mut field.worker());
    field.until("note", &keys, Status::Completed).await;
    polling.signal("-TERM");
    polling.until(&["INFO", "stopped"]);
    assert!(polling.process.wait().unwrap().success());
    let noted = field.noted();
    assert_eq!(noted.len(), 20);
    for (job, (keys, times)) in &noted {
        assert!(keys.len() == 1 && *times <= 2, "{job}: {times} times under {keys:?}");
    }
    assert_eq!(field.left().await, [0, 0], "all is deleted");
}

#[tokio::test]
async fn a_job_of_many_visibility_timeouts_runs_once_though_two_workers_poll() {
    let field = Field::new("").await;
    let mut workers = [(); 2].map(|()| Polling::start(&mut field.worker()));
    field.send("note", "long", "{\"ms\":7000}").await;
    field.until("note", &["long".to_owned()], Status::Completed).await;
    for worker in &mut workers {
        worker.signal("-TERM");
        worker.until(&["INFO", "stopped"]);
        assert!(worker.process.wait().unwrap().success());
    }
    assert_eq!(field.record("note", "long").await.unwrap().attempt, 1);
    assert_eq!(field.noted()["long"].1, 1);
    assert_eq!(field.left().await, [0, 0], "no copy was received meanwhile, and it is deleted");
}

#[tokio::test]
async fn slow_jobs_hold_up_no_others_and_none_is_received_without_a_place() {
    let field = Field::new("").await;
    let mut polling = Polling::start(field.worker().env("ONLYONCE_CONCURRENCY", "3"));
    for key in ["s-1", "s-2"] {
        field.send("note", key, "{\"ms\":6000}").await;
    }
    for n in 0..6 {
        field.send("echo", &format!("e-{n}"), "{}").await;
    }
    let quick: Vec<_> = (0..6).map(|n| format!("e-{n}")).collect();
    field.until("echo", &quick, Status::Completed).await;
    for key in ["s-1", "s-2"] {
        while field.status("note", key).await.is_none() {
            pause().await;
        }
        assert_eq!(field.status("note", key).await, Some(Status::Claimed), "it is at work still");
    }
    for n in 0..9 {
        field.send("note", &format!("w-{n}"), "{\"ms\":60000}").await;
    }
    polling.until(&["outcome=\"completed\"", "note"]);
    polling.until(&["outcome=\"completed\"", "note"]);
    // Three are taken, and the others wait where all can see them.
    while field.left().await != [6, 3] {
        pause().await;
    }
    for _ in 0..20 {
        pause().await;
        assert_eq!(field.left().await, [6, 3]);
    }

    // A job that would take a minute is stopped, and released.
    polling.signal("-TERM");
    polling.until(&["INFO", "stopped"]);
    assert!(polling.process.wait().unwrap().success());
    let mut released = 0;
    for n in 0..9 {
        let status = field.status("note", &format!("w-{n}")).await;
        released += usize::from(status == Some(Status::Released));
        assert!(matches!(status, None | Some(Status::Released)), "{status:?}");
    }
    assert_eq!(released, 3);
}

#[tokio::test]
async fn a_fifo_group_runs_in_order_and_another_beside_it() {
    let field = Field::new(".fifo").await;
    for n in 0..4 {
        for group in ["a", "b"] {
            let key = format!("{group}-{n}");
            field.send_in(Some(group), "note", &key, "{\"ms\":1000}").await;
        }
    }
    let mut polling = Polling::start(&mut field.worker());
    let keys: Vec<_> =
        ["a", "b"].iter().flat_map(|g| (0..4).map(move |n| format!("{g}-{n}"))).collect();
    field.until("note", &keys, Status::Completed).await;
    polling.signal("-TERM");
    polling.until(&["INFO", "stopped"]);
    let notes = std::fs::read_to_string(field.notes()).unwrap();
    for group in ["a", "b"] {
        let jobs = notes.lines().filter_map(|line| line.split_once(' ')).map(|(_, job)| job);
        let of: Vec<_> = jobs.filter(|job| job.starts_with(group)).collect();
        let expected: Vec<_> = (0..4).map(|n| format!("{group}-{n}")).collect();
        assert_eq!(of, expected, "though the four take twice as long as a message is hidden");
    }
    assert_eq!(field.left().await, [0, 0]);
}

#[test]
fn without_a_queue_it_says_what_is_missing() {
    let folder = Folder::new();
    let (code, said) = crate::run(
        example("my_worker").env_remove("ONLYONCE_QUEUE_URL").env("ONLYONCE_STORE", "memory:"),
        &[""; 0],
    );
    assert!(code == Some(1) && said.contains("ONLYONCE_QUEUE_URL"), "{said}");
    drop(folder);
}
