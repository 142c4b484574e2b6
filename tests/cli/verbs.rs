//! The verbs over a store of their own: what they say, and their exit status.

use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::Value;

use crate::{Folder, example, onlyonce, run};

#[test]
fn setup_makes_the_store_once_and_names_a_faulty_jobs_file() {
    let folder = Folder::new();
    let (code, said) = run(&mut onlyonce(&folder.0), &["setup"]);
    assert!(code == Some(0) && said.contains("is made"), "{said}");
    let (code, said) = run(&mut onlyonce(&folder.0), &["setup"]);
    assert!(code == Some(0) && said.contains("was there already"), "{said}");

    let jobs = folder.file("jobs.toml", "[job.a]\neffect = \"http\"\nurl = \"http://a/\"\n");
    let (code, said) = run(onlyonce(&folder.0).env("ONLYONCE_JOBS", jobs), &["setup"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("jobs.toml:1") && said.contains("no guarantee is named"), "{said}");
}

#[tokio::test]
async fn setup_makes_queues_that_lose_nothing_and_leaves_those_that_are_there() {
    let folder = Folder::new();
    let sqs = aws_sdk_sqs::Client::new(&onlyonce::sdk::load().await);
    for ending in ["", ".fifo"] {
        let name = format!("setup-{:016x}{ending}", fastrand::Rng::new().u64(..));
        let set_up = |visibility: &str| {
            let words = ["setup", "--queue", &name, "--visibility", visibility, "--json"];
            let (code, said) = run(&mut onlyonce(&folder.0), &words);
            assert_eq!(code, Some(0), "{said}");
            serde_json::from_str::<Value>(&said).unwrap()
        };
        let (made, again) = (set_up("60"), set_up("90"));
        assert_eq!((&made["queue_made"], &again["queue_made"]), (&true.into(), &false.into()));
        assert_eq!(made["queue_url"], again["queue_url"]);
        let attributes = async |url: &Value| {
            let ask = sqs.get_queue_attributes().queue_url(url.as_str().unwrap());
            let answer = ask.attribute_names(QueueAttributeName::All).send().await.unwrap();
            let attributes = answer.attributes.unwrap();
            move |name| attributes.get(&name).cloned()
        };
        let queue = attributes(&made["queue_url"]).await;
        let dead = attributes(&made["dlq_url"]).await;
        let redrive = queue(QueueAttributeName::RedrivePolicy).unwrap();
        let redrive: Value = serde_json::from_str(&redrive).unwrap();
        let dead_arn = dead(QueueAttributeName::QueueArn).unwrap();
        assert_eq!(redrive["deadLetterTargetArn"], dead_arn);
        assert!(dead_arn.ends_with(&format!("-dead{ending}")), "{dead_arn}");
        assert_eq!(queue(QueueAttributeName::VisibilityTimeout).unwrap(), "60");
        let kept = QueueAttributeName::MessageRetentionPeriod;
        assert_eq!(queue(kept.clone()).unwrap(), "604800");
        assert_eq!(dead(kept).unwrap(), "1209600");
    }
    let (code, said) = run(&mut onlyonce(&folder.0), &["setup", "--visibility", "60"]);
    assert!(code == Some(2) && said.contains("--queue"), "{said}");
}

#[test]
fn a_worker_in_rust_needs_no_jobs_file() {
    let folder = Folder::new();
    let store = format!("sqlite:{}", folder.0.join("records.db").display());
    let (code, said) = run(onlyonce(&folder.0).current_dir(&folder.0), &["setup"]);
    assert!(code == Some(0) && said.contains("none was checked"), "{said}");
    let (code, said) =
        run(onlyonce(&folder.0).env("ONLYONCE_JOBS", folder.0.join("none.toml")), &["setup"]);
    assert!(code == Some(1) && said.contains("none.toml: cannot be read"), "{said}");

    let words = ["setup", "--json"];
    let (code, said) = run(example("my_worker").env("ONLYONCE_STORE", &store), &words);
    assert!(code == Some(0) && said.contains("\"table_made\":false"), "{said}");

    let line = "{\"job\":\"order.settle\",\"idempotency-key\":\"order:1:settle\"}";
    let done = folder.file("done.jsonl", line);
    let (code, said) = run(example("my_worker").env("ONLYONCE_STORE", &store), &["import", &done]);
    assert!(code == Some(0) && said.starts_with("1 imported"), "{said}");
    let (code, said) =
        run(&mut onlyonce(&folder.0), &["inspect", "order.settle", "order:1:settle"]);
    assert!(code == Some(0) && said.contains("completed"), "{said}");
    let arguments = ["forget", "order.settle", "order:1:settle", "--yes"];
    let (code, said) = run(example("my_worker").env("ONLYONCE_STORE", &store), &arguments);
    assert!(code == Some(0) && said.contains("forgotten"), "{said}");
}

#[test]
fn what_is_imported_is_seen_and_imported_once() {
    let folder = Folder::new();
    run(&mut onlyonce(&folder.0), &["setup"]);
    let import = || run(&mut onlyonce(&folder.0), &["import", "examples/done.jsonl"]);
    let (code, said) = import();
    assert!(code == Some(0) && said.starts_with("2 imported, 0 completed before"), "{said}");
    let (code, said) = import();
    assert!(code == Some(0) && said.starts_with("0 imported, 2 completed before"), "{said}");

    let arguments = ["--json", "inspect", "invoice.finalize", "invoice:1000:finalize"];
    let (code, said) = run(&mut onlyonce(&folder.0), &arguments);
    assert_eq!(code, Some(0), "{said}");
    let record: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&record["status"], &record["attempt"]), (&"completed".into(), &0.into()));
    assert_eq!(record["output"], "{\"status\":200}");
    assert_eq!(record["expires_at"], Value::Null, "this job is remembered for ever");
    let digest = record["pk"].as_str().unwrap();
    let (code, said) = run(&mut onlyonce(&folder.0), &["inspect", digest]);
    assert!(code == Some(0) && said.contains("invoice:1000:finalize"), "{said}");
}

#[test]
fn an_import_of_an_unknown_job_or_a_broken_line_writes_nothing() {
    let folder = Folder::new();
    run(&mut onlyonce(&folder.0), &["setup"]);
    for (line, fault) in [
        ("{\"job\":\"nobody\",\"idempotency-key\":\"k\"}", "no job is named"),
        ("{\"job\":\"user.welcome\"}", "missing field `idempotency-key`"),
        ("{\"job\":\"user.welcome\",\"idempotency-key\":\"\"}", "key is empty"),
    ] {
        let path = folder.file("done.jsonl", line);
        let (code, said) = run(&mut onlyonce(&folder.0), &["import", &path]);
        assert!(code == Some(1) && said.contains(fault), "{said}");
    }
}

#[test]
fn what_is_not_there_is_said_and_fails() {
    let folder = Folder::new();
    let (code, said) = run(&mut onlyonce(&folder.0), &["list", "failed"]);
    assert!(code == Some(1) && said.contains("onlyonce setup"), "{said}");
    run(&mut onlyonce(&folder.0), &["setup"]);
    let (code, said) = run(&mut onlyonce(&folder.0), &["--json", "list", "failed"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, said) = run(&mut onlyonce(&folder.0), &["inspect", "user.welcome", "nobody"]);
    assert!(code == Some(1) && said.contains("there is no record"), "{said}");
    let (code, _) = run(&mut onlyonce(&folder.0), &["no-such-verb"]);
    assert_eq!(code, Some(2));
}

#[test]
fn what_a_worker_could_not_read_is_not_sent() {
    let folder = Folder::new();
    for line in ["{\"job\":\"a\",\"body\":{}}", "{\"idempotency-key\":\"k\",\"body\":{}}"] {
        let path = folder.file("lines.jsonl", line);
        let arguments = ["send", "--queue-url", "http://127.0.0.1:1/none", &path];
        let (code, said) = run(&mut onlyonce(&folder.0), &arguments);
        assert!(code == Some(1) && said.contains("lines.jsonl:1"), "{said}");
        assert!(said.contains("has no text attribute"), "{said}");
    }
}

#[test]
fn every_verb_has_help_with_an_example() {
    let folder = Folder::new();
    for verb in [
        "dev",
        "setup",
        "send",
        "inspect",
        "list",
        "import",
        "release",
        "resolve",
        "forget",
        "replay",
        "dlq list",
        "dlq show",
        "dlq replay",
        "drill",
        "doctor",
    ] {
        let mut command = onlyonce(&folder.0);
        let (code, said) = run(command.args(verb.split(' ')), &["--help"]);
        assert!(code == Some(0) && said.contains("Example"), "{verb}: {said}");
        assert!(said.contains("--json"), "{verb}");
    }
}

#[test]
fn an_empty_variable_is_named() {
    let folder = Folder::new();
    let (code, said) = run(onlyonce(&folder.0).env("ONLYONCE_DLQ_URL", ""), &["list", "failed"]);
    assert!(code == Some(1) && said.contains("ONLYONCE_DLQ_URL is set but empty"), "{said}");
}

#[test]
fn a_reader_that_has_stopped_ends_the_command_without_a_panic() {
    let folder = Folder::new();
    run(&mut onlyonce(&folder.0), &["setup"]);
    let import = ["import", "examples/done.jsonl"];
    for arguments in [&import[..], &["list", "failed"], &["list", "failed", "--json"], &["--help"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = onlyonce(&folder.0).args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}
