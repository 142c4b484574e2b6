//! A worker outside Lambda, on a real queue: it serves, and stops when it is told.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use onlyonce::protocol::{IdempotencyKey, RecordId, Status};
use onlyonce::sdk;
use onlyonce::store::{SqliteStore, Store};

use crate::{Folder, example};

struct Polling {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Polling {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Reads log lines until one contains all of `words`.
    fn until(&mut self, words: &[&str]) {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if words.iter().all(|word| line.contains(word)) {
                return;
            }
        }
        panic!("it ended without a line with {words:?}");
    }

    fn terminate(&self) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn it_serves_a_queue_and_finishes_what_runs_when_told_to_stop() {
    let client = Client::new(&sdk::load().await);
    let name = format!("poll-{:016x}", fastrand::Rng::new().u64(..));
    let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let folder = Folder::new();
    let file = folder.0.join("records.db");
    let store = SqliteStore::open(&file).await.unwrap();
    let send = async |job: &str, key: &str, body: &str| {
        let text = |value: &str| {
            MessageAttributeValue::builder().data_type("String").string_value(value).build()
        };
        let send = client.send_message().queue_url(&url).message_body(body);
        let send = send.message_attributes("job", text(job).unwrap());
        send.message_attributes("idempotency-key", text(key).unwrap()).send().await.unwrap();
    };
    let status = async |job: &str, key: &str| {
        let id = RecordId::new("default", job, &IdempotencyKey::new(key).unwrap());
        store.load(&id).await.unwrap().map(|record| record.status)
    };

    let mut polling = Polling::start(
        example("field_worker")
            .env("ONLYONCE_STORE", format!("sqlite:{}", file.display()))
            .env("ONLYONCE_QUEUE_URL", &url),
    );
    polling.until(&["polling"]);
    send("echo", "a", "{}").await;
    polling.until(&["outcome=\"completed\""]);
    send("echo", "a", "{}").await;
    polling.until(&["outcome=\"replayed\""]);

    send("slow", "b", "{\"ms\":1500}").await;
    while status("slow", "b").await.is_none() {
        tokio::task::yield_now().await;
    }
    polling.terminate();
    polling.until(&["outcome=\"completed\"", "slow"]);
    polling.until(&["stopped"]);
    assert!(polling.process.wait().unwrap().success());
    assert_eq!(status("slow", "b").await, Some(Status::Completed));

    let visible = QueueAttributeName::ApproximateNumberOfMessages;
    let hidden = QueueAttributeName::ApproximateNumberOfMessagesNotVisible;
    let left = client.get_queue_attributes().queue_url(&url);
    let left = left.attribute_names(visible).attribute_names(hidden).send().await.unwrap();
    assert!(left.attributes.unwrap().values().all(|count| count == "0"), "all is deleted");
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
