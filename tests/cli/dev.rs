//! `dev`: copies, kills, and a verdict that a missing claim would not pass.

use serde_json::Value;

use crate::{Folder, example, onlyonce, run};

/// Runs `dev` for its JSON report.
fn report(arguments: &[&str]) -> (Option<i32>, Value) {
    let folder = Folder::new();
    let mut command = onlyonce(&folder.0);
    let (code, said) = run(command.args(["--json", "dev"]), arguments);
    let report = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    (code, report)
}

fn sum(report: &Value, figure: &str) -> u64 {
    report["jobs"].as_object().unwrap().values().map(|job| job[figure].as_u64().unwrap()).sum()
}

#[test]
fn copies_without_kills_make_one_request_per_key() {
    let (code, report) = report(&["examples/orders.jsonl", "--duplicates", "3"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!((sum(&report, "requests"), sum(&report, "keys")), (20, 20));
    assert_eq!((sum(&report, "messages"), sum(&report, "killed")), (80, 0));
}

#[test]
fn under_kills_every_keyed_effect_happens_exactly_once() {
    let (code, report) = report(&["examples/orders.jsonl", "--duplicates", "3", "--crash", "0.2"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert!(sum(&report, "killed") > 0, "{report:#}");
    for (name, job) in report["jobs"].as_object().unwrap() {
        if name != "user.welcome" {
            assert_eq!(job["effects"], job["keys"], "{name}");
        }
    }
    let verdicts = report["verdicts"].as_array().unwrap();
    let texts: Vec<_> = verdicts.iter().map(|verdict| verdict["text"].as_str().unwrap()).collect();
    assert!(texts.contains(&"keyed: every key exactly one effect"), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("at-least-once: every key")), "{texts:?}");
}

#[test]
fn a_programs_own_jobs_are_tried_out_the_same_way() {
    let arguments = ["dev", "examples/mine.jsonl", "--duplicates", "2", "--crash", "0.2"];
    let (code, said) = run(&mut example("my_worker"), &arguments);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("order.settle") && said.contains("claims: "), "{said}");
    assert!(said.contains("-    not counted"), "a zero would be a lie: {said}");
}

#[test]
fn messages_come_from_standard_input_and_poison_is_dead_not_lost() {
    let folder = Folder::new();
    let lines = folder.file(
        "lines.jsonl",
        "{\"job\":\"user.welcome\",\"idempotency-key\":\"u:1\",\"body\":{\"user_id\":1}}\n\n\
         {\"job\":\"nobody\",\"idempotency-key\":\"u:2\",\"body\":{}}\n\
         {\"job\":\"user.welcome\",\"idempotency-key\":\"u:3\",\"body\":\"no json\"}\n",
    );
    let input = std::fs::File::open(lines).unwrap();
    let mut command = onlyonce(&folder.0);
    let (code, said) = run(command.stdin(input), &["dev"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("among the 2 dead letters"), "{said}");
}

#[test]
fn another_payload_under_a_key_is_told_from_a_copy_and_the_reason_is_said() {
    let folder = Folder::new();
    let line = |n: u32| {
        let body = format!("{{\"user_id\":1,\"n\":{n}}}");
        format!("{{\"job\":\"user.welcome\",\"idempotency-key\":\"u:1\",\"body\":{body}}}\n")
    };
    let path = folder.file("lines.jsonl", &(line(1) + &line(1) + &line(2)));
    let (code, said) = run(&mut onlyonce(&folder.0), &["dev", &path]);
    assert_eq!(code, Some(0), "{said}");
    let count = |text: &str| said.matches(text).count();
    assert_eq!((count("| replayed "), count("| mismatch ")), (1, 1), "{said}");
    assert!(said.contains("dead 1 x mismatch, user.welcome: the key was used before"), "{said}");
}

/// A provider that answers after a second would run into every timeout if time ran faster.
#[test]
fn the_real_world_has_the_time_it_needs() {
    use std::io::{Read, Write};
    let folder = Folder::new();
    let provider = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = provider.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = provider.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let job = format!(
        "[job.a]\neffect = \"http\"\nguarantee = \"keyed\"\nurl = \"http://{host}/\"\n\
         allow_hosts = [\"{host}\"]\n"
    );
    let jobs = folder.file("jobs.toml", &job);
    let line = "{\"job\":\"a\",\"idempotency-key\":\"k\",\"body\":{}}\n";
    let lines = folder.file("lines.jsonl", line);
    let mut command = onlyonce(&folder.0);
    let (code, said) = run(command.env("ONLYONCE_JOBS", jobs), &["dev", "--real", &lines]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 attempts, 1 keys") && said.contains("completed"), "{said}");
    served.join().unwrap();
}

/// A jobs file that names its attributes otherwise and derives keys is tried out as it is.
#[test]
fn messages_are_read_by_the_jobs_files_own_rules() {
    let folder = Folder::new();
    let job = "guarantee = \"keyed\"\nurl = \"https://example.com/\"\n";
    let rules = "[message]\nkey_attribute = \"dedupe\"\nkey = \"order\"\ndefault_job = \"a\"\n";
    let jobs = folder.file("jobs.toml", &format!("{rules}[job.a]\neffect = \"http\"\n{job}"));
    let lines = folder.file(
        "lines.jsonl",
        "{\"body\":{\"order\":1}}\n{\"idempotency-key\":\"two\",\"body\":{}}\n{\"body\":{}}\n",
    );
    let mut command = onlyonce(&folder.0);
    let command = command.env("ONLYONCE_JOBS", jobs);
    let (code, said) = run(command, &["--json", "dev", &lines, "--duplicates", "1"]);
    assert_eq!(code, Some(0), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((sum(&report, "keys"), sum(&report, "requests")), (2, 2), "{report:#}");
    assert_eq!(report["dead"], 2, "the one without a key, and its copy");
}

#[test]
fn a_wrong_line_is_named_and_nothing_is_run() {
    let folder = Folder::new();
    let path = folder.file("lines.jsonl", "{\"job\":\"a\",\"idempotency-key\":\"\",\"body\":{}}\n");
    let (code, said) = run(&mut onlyonce(&folder.0), &["dev", &path]);
    assert_eq!(code, Some(1));
    assert!(said.contains("lines.jsonl:1") && said.contains("key is empty"), "{said}");
    let (code, _) = run(&mut onlyonce(&folder.0), &["dev", "--crash", "2"]);
    assert_eq!(code, Some(2));
}

#[test]
fn watching_runs_again_when_the_file_changes() {
    use std::io::{BufRead, BufReader};
    let folder = Folder::new();
    let line = |n: u32| {
        let body = format!("{{\"user_id\":{n}}}");
        format!("{{\"job\":\"user.welcome\",\"idempotency-key\":\"u:{n}\",\"body\":{body}}}\n")
    };
    let path = folder.file("lines.jsonl", &line(1));
    let mut running = onlyonce(&folder.0)
        .args(["--json", "dev", "--watch", &path])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut reports = BufReader::new(running.stdout.take().unwrap()).lines();
    let mut keys = || -> u64 {
        let report: Value = serde_json::from_str(&reports.next().unwrap().unwrap()).unwrap();
        sum(&report, "keys")
    };
    assert_eq!(keys(), 1);
    folder.file("lines.jsonl", &(line(1) + &line(2)));
    assert_eq!(keys(), 2);
    running.kill().unwrap();
    running.wait().unwrap();
}

/// What would go to AWS goes to the receiver: no endpoint and no credentials are needed.
#[test]
fn effects_that_call_aws_are_only_rehearsed() {
    let folder = Folder::new();
    let jobs = [
        ("a", "keyed", "effect = \"lambda\"\nfunction = \"charge\""),
        ("b", "at-least-once", "effect = \"sqs\"\nqueue_url = \"https://sqs.invalid/0/ship\""),
        ("c", "at-least-once", "effect = \"sns\"\ntopic_arn = \"arn:aws:sns:us-east-1:0:told\""),
        (
            "d",
            "at-most-once",
            "effect = \"eventbridge\"\nbus = \"shop\"\nsource = \"s\"\ndetail_type = \"d\"",
        ),
    ];
    let table = |(job, guarantee, effect): &(&str, &str, &str)| {
        format!("[job.{job}]\nguarantee = \"{guarantee}\"\n{effect}\n")
    };
    let line = |(job, ..): &(&str, &str, &str)| {
        format!("{{\"job\":\"{job}\",\"idempotency-key\":\"k\",\"body\":{{}}}}\n")
    };
    let file = folder.file("jobs.toml", &jobs.iter().map(table).collect::<String>());
    let lines = folder.file("lines.jsonl", &jobs.iter().map(line).collect::<String>());
    let mut command = onlyonce(&folder.0);
    command.env("ONLYONCE_JOBS", file).env("AWS_ENDPOINT_URL", "http://127.0.0.1:9");
    let (code, said) = run(&mut command, &["dev", "--duplicates", "2", &lines]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 attempts, 4 requests, 4 keys"), "{said}");
    assert!(said.contains("keyed: every key exactly one effect"), "{said}");
    assert!(said.contains("POST /lambda/charge key "), "{said}");
}

/// Rows are real ones, in a database of the run; a mail is counted, and goes to nobody.
#[test]
fn rows_are_written_and_mails_are_counted() {
    let folder = Folder::new();
    folder.file("mail.txt", "Dear {name}.\n");
    let jobs = folder.file(
        "jobs.toml",
        "[job.reserve]\neffect = \"row\"\nguarantee = \"transactional\"\ntable = \"stock\"\n\
         key = { sku = \"{sku}\" }\nadd = { available = \"-{n}\" }\nfloor = { available = 0 }\n\
         [job.welcome]\neffect = \"email\"\nguarantee = \"at-least-once\"\n\
         from = \"shop@example.com\"\nto = \"{name}@example.com\"\nsubject = \"Welcome\"\n\
         template = \"mail.txt\"\nsmtp = \"smtps://mail.invalid\"\nsecret = { env = \"NOT_SET\" }\n",
    );
    let lines = folder.file(
        "lines.jsonl",
        "{\"job\":\"reserve\",\"idempotency-key\":\"r:1\",\"body\":{\"sku\":\"cup\",\"n\":2}}\n\
         {\"job\":\"reserve\",\"idempotency-key\":\"r:2\",\"body\":{\"sku\":\"cup\",\"n\":2}}\n\
         {\"job\":\"welcome\",\"idempotency-key\":\"w:1\",\"body\":{\"name\":\"ada\"}}\n",
    );
    let sql = folder.file(
        "shop.sql",
        "CREATE TABLE stock (sku TEXT PRIMARY KEY, available INTEGER);\n\
         INSERT INTO stock VALUES ('cup', 3);\n",
    );
    let dev = |more: &[&str]| {
        let mut command = onlyonce(&folder.0);
        let arguments = [&["dev", &lines, "--duplicates", "2"], more].concat();
        run(command.env("ONLYONCE_JOBS", &jobs), &arguments)
    };
    let (code, said) = dev(&["--sql", &sql]);
    assert_eq!(code, Some(0), "{said}");
    // The second would leave less than nothing. Each of its copies was sent so close to the failure
    // that it may be a dead letter sent again, and goes back there.
    assert!(said.contains("among the 3 dead letters"), "{said}");
    assert!(said.contains("at-least-once: every key one request"), "{said}");
    let mail = said.lines().find(|line| line.starts_with("| welcome")).unwrap();
    let figures: Vec<_> = mail.split('|').map(str::trim).collect();
    assert_eq!(figures[5..8], ["1", "1", "1"], "{said}");

    let (_, said) = dev(&[]);
    assert!(said.contains("no such table: stock"), "{said}");
}

/// Each class is held to its own promise, and a provider that is asked says what it has seen.
#[test]
fn under_kills_each_guarantee_is_held_to_its_word() {
    let folder = Folder::new();
    let jobs = folder.file(
        "jobs.toml",
        "[job.letter]\neffect = \"http\"\nguarantee = \"at-most-once\"\n\
         url = \"https://print.example.com/letters\"\n\
         [job.pay]\neffect = \"http\"\nguarantee = \"reconcile\"\n\
         url = \"https://pay.example.com/payments\"\n\
         ask = { url = \"https://pay.example.com/payments/{effect_key}\", lag = \"1s\" }\n\
         retry = { policy = \"fixed\", delay = \"1s\", attempts = 9 }\n",
    );
    let line = |job, n| {
        format!("{{\"job\":\"{job}\",\"idempotency-key\":\"{job}:{n}\",\"body\":{{\"n\":{n}}}}}\n")
    };
    let lines: String = (0..12).flat_map(|n| [line("letter", n), line("pay", n)]).collect();
    let lines = folder.file("lines.jsonl", &lines);
    let mut command = onlyonce(&folder.0);
    let arguments = ["--json", "dev", &lines, "--duplicates", "1", "--crash", "0.4"];
    let (code, said) = run(command.env("ONLYONCE_JOBS", jobs), &arguments);
    assert_eq!(code, Some(0), "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    let verdicts = report["verdicts"].as_array().unwrap();
    let texts: Vec<_> = verdicts.iter().map(|verdict| verdict["text"].as_str().unwrap()).collect();
    assert!(texts.contains(&"at-most-once: no key more than one request"), "{texts:?}");
    assert!(texts.contains(&"reconcile: every key exactly one effect"), "{texts:?}");
    let pay = &report["jobs"]["pay"];
    assert_eq!(pay["requests"], pay["keys"], "{report:#}");
}
