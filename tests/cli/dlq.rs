//! The dead-letter queue: looked at, and brought back, on a real queue.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use aws_sdk_sqs::types::MessageAttributeValue;
use onlyonce::front::{Poll, SqsQueue};
use onlyonce::store::MemoryStore;
use onlyonce::{Context, HandlerError, Router, Worker};
use serde_json::{Value, json};

use crate::operate::Bench;
use crate::queue::Queue;
use crate::run;

pub struct Post {
    pub bench: Bench,
    pub queue: Queue,
    dlq: Queue,
}

impl Post {
    pub async fn on(kind: &str) -> Self {
        let (queue, dlq) = (Queue::new().await, Queue::new().await);
        Self { bench: Bench::on(kind).await, queue, dlq }
    }

    pub async fn dead(&self, job: &str, key: &str, cause: Option<&str>, body: Value) {
        let text = |value: &str| {
            MessageAttributeValue::builder().data_type("String").string_value(value).build()
        };
        let send = self.dlq.client.send_message().queue_url(&self.dlq.url);
        let send =
            send.message_body(body.to_string()).message_attributes("job", text(job).unwrap());
        let mut send = send.message_attributes("idempotency-key", text(key).unwrap());
        if let Some(cause) = cause {
            let mark = json!({
                "job": job, "key": null, "token": 1, "cause": cause, "error": "why", "at": 1
            });
            let mark = text(&mark.to_string()).unwrap();
            send = send.message_attributes("onlyonce-quarantine", mark);
        }
        send.send().await.unwrap();
    }

    fn command(&self) -> Command {
        let mut command = self.bench.command();
        command.env("ONLYONCE_QUEUE_URL", &self.queue.url).env("ONLYONCE_DLQ_URL", &self.dlq.url);
        command
    }

    pub fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        run(&mut self.command(), words)
    }
}

#[tokio::test]
async fn a_replay_that_is_interrupted_and_run_again_runs_each_job_once() {
    let post = Post::on("sqlite").await;
    for n in 0..25 {
        post.dead("mail", &format!("k{n}"), Some("failed"), json!(n)).await;
    }
    let (code, said) = post.run(&["dlq", "list"]);
    assert!(code == Some(0) && said.ends_with("25 failed: mail\n"), "{said}");
    let (code, said) = post.run(&["dlq", "replay"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with(
        "25 would be sent; --yes does it, 0 left as they would come back, 0 of others\n"
    ));
    assert_eq!((post.dlq.len().await, post.queue.len().await), (25, 0), "nothing was done");

    let mut command = post.command();
    let command = command.args(["dlq", "replay", "--yes", "--rate", "5"]);
    let mut replaying = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(replaying.stdout.take().unwrap()).lines();
    for _ in 0..6 {
        let line = lines.next().expect("it goes on").unwrap();
        assert!(line.ends_with("mail: runs"), "{line}");
    }
    let pid = replaying.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let last = lines.map_while(Result::ok).last();
    assert_eq!(last.as_deref(), Some("interrupted: run it again for the rest"));
    assert_eq!(replaying.wait().unwrap().code(), Some(1));
    let (left, sent) = (post.dlq.len().await, post.queue.len().await);
    assert!((1..25).contains(&left) && left + sent == 25, "{left} left, {sent} sent");

    let (code, said) = post.run(&["dlq", "replay", "--yes", "--rate", "1000"]);
    assert!(code == Some(0) && said.contains(&format!("{left} sent to the queue")), "{said}");
    assert_eq!(post.dlq.len().await, 0);
    let ran = post.queue.served("mail").await;
    let each: BTreeSet<u64> = ran.iter().map(|body| body.as_u64().unwrap()).collect();
    assert_eq!((ran.len(), each), (25, (0..25).collect()));
}

#[tokio::test]
async fn what_would_come_straight_back_stays_and_filters_choose() {
    let post = Post::on("sqlite").await;
    post.bench.unknown("a").await;
    post.dead("pay", "a", Some("unknown"), json!({})).await;
    post.dead("mail", "b", Some("failed"), json!({ "n": 1 })).await;
    post.dead("mail", "c", None, json!({ "n": 2 })).await;
    let lines = |said: &str| -> Vec<Value> {
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (_, said) = post.run(&["--json", "dlq", "list", "--cause", "redriven"]);
    let [letter] = lines(&said).try_into().unwrap();
    assert_eq!(letter["job"], "mail");
    let id = letter["message_id"].as_str().unwrap();
    let (code, said) = post.run(&["dlq", "show", id]);
    assert!(code == Some(0) && said.ends_with("\n{\"n\":2}\n"), "{said}");
    let (code, said) = post.run(&["dlq", "show", "nobody"]);
    assert!(code == Some(1) && said.contains("is not in the dead-letter queue"), "{said}");

    let arguments = ["--json", "dlq", "replay", "--job", "mail", "--cause", "failed", "--yes"];
    let (code, said) = post.run(&arguments);
    let [one, sum] = lines(&said).try_into().unwrap();
    assert_eq!((code, one["fate"].as_str()), (Some(0), Some("runs")));
    assert_eq!((&sum["sent"], &sum["others"]), (&json!(1), &json!(2)));
    let (code, said) = post.run(&["dlq", "replay", "--yes"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("pay: stays: resolve it first"), "{said}");
    assert!(said.ends_with("1 sent to the queue, 1 left as they would come back, 0 of others\n"));
    assert_eq!(post.queue.served("mail").await.len(), 2);

    assert_eq!(post.run(&["resolve", "pay", "a", "--not-done"]).0, Some(0));
    let (code, said) = post.run(&["dlq", "replay", "--yes"]);
    assert!(code == Some(0) && said.contains("pay: runs"), "{said}");
    assert_eq!(post.queue.served("pay").await.len(), 1);
    let (code, said) = run(&mut post.bench.command(), &["dlq", "list"]);
    assert!(code == Some(2) && said.contains("set ONLYONCE_DLQ_URL"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_again_at_once_ends_a_replay() {
    let post = Post::on("sqlite").await;
    for n in 0..3 {
        post.dead("mail", &format!("k{n}"), Some("failed"), json!(n)).await;
    }
    let decline = async |_: Value, _: Context| Err::<(), _>(HandlerError::terminal("no mailbox"));
    let worker =
        Worker::builder(MemoryStore::new()).build(Router::new().job("mail", decline)).unwrap();
    let poll = Poll::open(&post.queue.sdk, &post.queue.url).await.unwrap();
    let queue = SqsQueue::new(&post.queue.sdk)
        .queue_url(Some(post.queue.url.clone()))
        .dlq_url(Some(post.dlq.url.clone()));
    let (stop, told) = tokio::sync::watch::channel(false);
    let replaying = async {
        let mut command = post.command();
        let mut child = command.args(["dlq", "replay", "--yes"]).spawn().unwrap();
        let pid = child.id().to_string();
        let waiting = tokio::task::spawn_blocking(move || child.wait().unwrap().code());
        let code = match tokio::time::timeout(Duration::from_secs(60), waiting).await {
            Ok(ended) => ended.unwrap(),
            Err(_) => {
                Command::new("kill").args(["-KILL", &pid]).status().unwrap();
                panic!("it does not end")
            }
        };
        while post.queue.len().await > 0 {}
        stop.send(true).unwrap();
        code
    };
    let (served, code) = tokio::join!(poll.serve(&worker, &queue, told), replaying);
    served.unwrap();
    assert!(matches!(code, Some(0 | 1)), "{code:?}");
    assert_eq!(post.dlq.len().await, 3, "each is back, once");
}
