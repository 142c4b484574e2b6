//! The `email` effect by SES, against the service at `AWS_ENDPOINT_URL`.

#![cfg(feature = "ses")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use onlyonce::protocol::{IdempotencyKey, Output};
use onlyonce::service::{Deadline, Delivery, Ending, Outcome};
use onlyonce::store::MemoryStore;
use onlyonce::{Router, Worker};
use serde_json::Value;

/// A worker with the job `welcome`, whose mails come from `from`.
fn worker(from: &str) -> Worker {
    let name = format!("ses-{:016x}", fastrand::Rng::new().u64(..));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("mail.txt"), "Dear {name}, you owe us {amount} €.\n").unwrap();
    let jobs = format!(
        "[job.welcome]\neffect = \"email\"\nguarantee = \"at-most-once\"\nfrom = \"{from}\"\n\
         to = \"{{to}}\"\nsubject = \"Welcome, {{name}}\"\ntemplate = \"mail.txt\"\nses = true\n"
    );
    let file = folder.join("jobs.toml");
    std::fs::write(&file, jobs).unwrap();
    let jobs = Router::from_jobs_file(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Worker::builder(MemoryStore::new()).build(jobs).unwrap()
}

async fn run(worker: &Worker, key: &str, to: &str) -> Outcome {
    let now = worker.clock().now();
    let delivery = Delivery {
        job: "welcome".to_owned(),
        key: IdempotencyKey::new(key).unwrap(),
        body: serde_json::json!({ "name": "Zoë", "to": to, "amount": 5 }).to_string(),
        message_id: None,
        enqueued_at: Some(now),
        unique: None,
    };
    worker.handle(delivery, Deadline::new(now, now + Duration::from_secs(30))).await
}

/// Asks the emulator itself, and answers with its JSON.
fn ask(method: &str, path: &str, body: &str) -> Value {
    let endpoint = std::env::var("AWS_ENDPOINT_URL").unwrap();
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut stream = TcpStream::connect(&host).unwrap();
    // Whose service it is, is said by the signature's scope; nobody checks the rest.
    let scope = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ses/aws4_request";
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {scope}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(&answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()]).unwrap()
}

/// The mails to one address, as the emulator shows them.
fn mails(to: &str) -> Vec<Value> {
    let all = ask("GET", "/_ministack/ses/messages", "");
    let is_to = |mail: &&Value| mail["To"].as_array().unwrap().iter().any(|it| it == to);
    let accounts = all["messages"].as_object().unwrap().values();
    accounts.flat_map(|mails| mails.as_array().unwrap()).filter(is_to).cloned().collect()
}

#[tokio::test]
async fn a_mail_is_sent_once_and_a_refused_one_is_terminal() {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local SES and sets it"
    );
    let random = fastrand::Rng::new().u64(..);
    let (from, to) =
        (format!("shop-{random:x}@example.com"), format!("zoe-{random:x}@example.com"));
    let worker = worker(&from);

    // Nobody has verified the sender yet.
    let refused = run(&worker, "first", &to).await;
    assert!(matches!(refused.ending, Ending::Failed(_)), "{refused:?}");
    let why = refused.error.unwrap();
    assert!(why.contains("MessageRejected") && !why.contains(&to), "{why}");

    let identity = serde_json::json!({ "EmailIdentity": from }).to_string();
    ask("POST", "/v2/email/identities", &identity);
    let sent = run(&worker, "second", &to).await;
    let Ending::Completed(Output::Stored(answer)) = &sent.ending else { panic!("{sent:?}") };
    assert!(answer.contains("@example.com>"), "{answer}");
    let again = run(&worker, "second", &to).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");

    let mails = mails(&to);
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert_eq!(mails[0]["Source"], from.as_str());
    assert!(mails[0]["BodyText"].as_str().unwrap().contains("you owe us 5"), "{mails:?}");
}
