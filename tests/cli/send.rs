//! `send`: what it takes, what it says, and what is in the queue after.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, QueueAttributeName};
use onlyonce::sdk;
use serde_json::{Value, json};

use crate::{Folder, onlyonce, run};

struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    async fn new() -> Self {
        let client = Client::new(&sdk::load().await);
        let name = format!("send-{:016x}", fastrand::Rng::new().u64(..));
        let url = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
        Self { client, url }
    }

    /// Takes out what is there now.
    async fn take(&self) -> Vec<Message> {
        let mut all = Vec::new();
        loop {
            let receive = self.client.receive_message().queue_url(&self.url);
            let receive = receive.max_number_of_messages(10).message_attribute_names("All");
            let messages = receive.send().await.unwrap().messages.unwrap_or_default();
            if messages.is_empty() {
                return all;
            }
            for message in messages {
                let delete = self.client.delete_message().queue_url(&self.url);
                let receipt = message.receipt_handle.clone();
                delete.set_receipt_handle(receipt).send().await.unwrap();
                all.push(message);
            }
        }
    }
}

fn key(message: &Message) -> &str {
    message.message_attributes.as_ref().unwrap()["idempotency-key"].string_value.as_ref().unwrap()
}

fn line(n: usize) -> String {
    json!({"job": "a", "idempotency-key": format!("order:{n}:a"), "body": {"n": n}}).to_string()
}

fn lines(count: usize) -> String {
    (0..count).map(|n| line(n) + "\n").collect()
}

/// Outside the repository, so that there is no jobs file; its two streams apart.
fn send(folder: &Folder, queue: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = onlyonce(&folder.0);
    command.current_dir(&folder.0).args(["send", "--queue-url", queue]).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn every_line_of_a_file_is_sent_and_answered_for() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let file = folder.file("lines.jsonl", &(lines(123) + "\n\n"));
    let (code, ids, said) = send(&folder, &queue.url, &[&file]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("123 sent in") && said.trim().ends_with("/s"), "{said}");
    let messages = queue.take().await;
    let by_id: HashMap<_, _> =
        messages.iter().map(|it| (it.message_id.clone().unwrap(), it)).collect();
    assert_eq!((messages.len(), by_id.len()), (123, 123));
    for (n, id) in ids.lines().enumerate() {
        assert_eq!(key(by_id[id]), format!("order:{n}:a"), "ids come in the order of the lines");
        assert_eq!(by_id[id].body.as_deref(), Some(format!("{{\"n\":{n}}}").as_str()));
    }
}

#[tokio::test]
async fn as_json_each_line_names_its_message_its_key_and_its_job() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let file = folder.file("lines.jsonl", &lines(2));
    let (code, out, said) = send(&folder, &queue.url, &["--json", &file]);
    assert_eq!(code, Some(0), "{said}");
    let out: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages = queue.take().await;
    assert_eq!(out.len(), 2);
    for (n, line) in out.iter().enumerate() {
        assert_eq!((&line["line"], &line["job"]), (&json!(n + 1), &json!("a")));
        let sent = messages.iter().find(|it| line["message_id"] == json!(it.message_id)).unwrap();
        assert_eq!(key(sent), format!("order:{n}:a"));
        assert_eq!(line["key"].as_str().unwrap().len(), 64);
    }
    let summary: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&summary["sent"], &summary["not_sent"]), (&json!(2), &json!(0)));
    assert!(summary["per_second"].is_u64(), "{summary}");
}

#[tokio::test]
async fn of_a_file_with_a_faulty_line_nothing_is_sent() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let large = json!({"job": "a", "idempotency-key": "k:1", "body": "x".repeat(1 << 20)});
    let grouped = json!({"job": "a", "idempotency-key": "k:1", "body": 1, "group": "a b"});
    for (faulty, fault) in [
        ("{\"job\":\"a\",\"body\":1}".to_owned(), "has no text attribute"),
        ("no JSON".to_owned(), "this is no JSON, see column"),
        (large.to_string(), "SQS takes 1048576"),
        (grouped.to_string(), "message group"),
        ("x".repeat(8 * 1024 * 1024 + 1), "longer than"),
    ] {
        let file = folder.file("lines.jsonl", &format!("{}{faulty}\n{}\n", lines(50), line(50)));
        let (code, out, said) = send(&folder, &queue.url, &[&file]);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
        assert!(said.contains("lines.jsonl:51: ") && said.contains(fault), "{said}");
        assert!(said.contains("nothing was sent"), "{said}");
    }
    assert_eq!(queue.take().await.len(), 0);
}

#[tokio::test]
async fn standard_input_is_sent_as_it_comes_and_a_faulty_line_costs_no_other() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let mut sending = onlyonce(&folder.0)
        .current_dir(&folder.0)
        .args(["send", "--queue-url", &queue.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = sending.stdin.take().unwrap();
    let mut ids = BufReader::new(sending.stdout.take().unwrap()).lines();
    writeln!(input, "{}", line(0)).unwrap();
    // It has been sent though there may be more to come.
    let first = ids.next().unwrap().unwrap();
    assert_eq!(queue.take().await[0].message_id.as_ref(), Some(&first));
    write!(input, "{{}}\n\n{}\n{}", line(1), line(2)).unwrap();
    drop(input);
    assert_eq!(ids.count(), 2);
    let output = sending.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard input:2: missing field `body`"), "{said}");
    assert!(said.contains("3 sent in"), "{said}");
    assert!(said.contains("1 not sent") && said.contains("run the same again"), "{said}");
    let keys: Vec<_> = queue.take().await.iter().map(|it| key(it).to_owned()).collect();
    assert_eq!(keys.len(), 2);
}

#[tokio::test]
async fn into_a_fifo_queue_nothing_is_sent_past_a_faulty_line() {
    let folder = Folder::new();
    let client = Client::new(&sdk::load().await);
    let name = format!("send-{:016x}.fifo", fastrand::Rng::new().u64(..));
    let create = client.create_queue().queue_name(name);
    let create = create.attributes(QueueAttributeName::FifoQueue, "true");
    let queue = Queue { url: create.send().await.unwrap().queue_url.unwrap(), client };
    let line = |n: usize| {
        let key = format!("order:{n}:a");
        json!({"job": "a", "idempotency-key": key, "body": n, "group": "ada"}).to_string() + "\n"
    };
    let text = line(0) + "{}\n" + &line(1);
    let mut sending = onlyonce(&folder.0)
        .current_dir(&folder.0)
        .args(["send", "--queue-url", &queue.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    sending.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = sending.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped after standard input:2"), "{said}");
    let messages = queue.take().await;
    assert_eq!(messages.iter().map(key).collect::<Vec<_>>(), ["order:0:a"]);
    // Repaired, and run again: what is in the queue already is known to it.
    let file = folder.file("lines.jsonl", &(line(0) + &line(2) + &line(1)));
    let (code, ids, said) = send(&folder, &queue.url, &[&file]);
    assert_eq!((code, ids.lines().count()), (Some(0), 3), "{said}");
    let messages = queue.take().await;
    assert_eq!(messages.iter().map(key).collect::<Vec<_>>(), ["order:2:a", "order:1:a"]);
}

#[tokio::test]
async fn a_queue_that_takes_nothing_is_not_asked_for_every_line() {
    let folder = Folder::new();
    let queue = Queue::new().await;
    let file = folder.file("lines.jsonl", &lines(500));
    let (code, out, said) = send(&folder, &format!("{}-none", queue.url), &[&file]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("lines.jsonl:1: ") && said.contains("make the queue"), "{said}");
    assert!(said.contains("stopped after") && !said.contains("lines.jsonl:41: "), "{said}");
    assert!(said.contains("run the same again"), "{said}");
}

#[tokio::test]
async fn keys_that_look_random_are_warned_of_once_or_refused() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let line =
        |key: &str| json!({"job": "a", "idempotency-key": key, "body": 1}).to_string() + "\n";
    let uuids = ["9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d", "9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2e"];
    let text = line("order:1") + &line(uuids[0]) + &line(uuids[1]);
    let file = folder.file("lines.jsonl", &text);
    let (code, _, said) = send(&folder, &queue.url, &[&file]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("warning").count(), 1, "{said}");
    assert!(said.contains("lines.jsonl:2: warning") && !said.contains(uuids[0]), "{said}");
    assert_eq!(queue.take().await.len(), 3);
    let (code, _, said) = send(&folder, &queue.url, &["--strict", &file]);
    assert!(code == Some(1) && said.contains("lines.jsonl:2: the key looks like"), "{said}");
    assert_eq!(queue.take().await.len(), 0);
}

#[tokio::test]
async fn a_delay_is_the_queues_to_keep() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    let file = folder.file("lines.jsonl", &lines(1));
    let (code, _, said) = send(&folder, &queue.url, &["--delay", "600", &file]);
    assert_eq!(code, Some(0), "{said}");
    let name = QueueAttributeName::ApproximateNumberOfMessagesDelayed;
    let ask = queue.client.get_queue_attributes().queue_url(&queue.url);
    let counts = ask.attribute_names(name.clone()).send().await.unwrap().attributes.unwrap();
    assert_eq!(counts[&name], "1");
    let (code, _, said) = send(&folder, &queue.url, &["--delay", "901", &file]);
    assert!(code == Some(2) && said.contains("901"), "{said}");
    let fifo = format!("{}.fifo", queue.url);
    let (code, _, said) = send(&folder, &fifo, &["--delay", "1", &file]);
    assert!(code == Some(1) && said.contains("FIFO"), "{said}");
}

#[tokio::test]
async fn lines_are_never_all_held_at_once() {
    let (folder, queue) = (Folder::new(), Queue::new().await);
    // 80 MB, of which the last line is faulty: read to its end, by a program that may have 64 MB.
    let body = "x".repeat(200 * 1024);
    let large = json!({"job": "a", "idempotency-key": "k:1", "body": body}).to_string() + "\n";
    let file = folder.file("lines.jsonl", &(large.repeat(400) + "{}"));
    let program = env!("CARGO_BIN_EXE_onlyonce");
    let script = format!("ulimit -d 65536; exec {program} send --queue-url {} {file}", queue.url);
    let mut limited = Command::new("sh");
    // Each thread's stack counts.
    limited.current_dir(&folder.0).env("TOKIO_WORKER_THREADS", "2").args(["-c", &script]);
    let (code, said) = run(&mut limited, &[""; 0]);
    assert!(code == Some(1) && said.contains("lines.jsonl:401: missing field"), "{said}");
}
