//! `examples/order_flow.rs`: one mail for each order, though worker and relay are killed; and nothing is
//! left behind.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use aws_sdk_sqs::Client;
use onlyonce::sdk;

use crate::{example, run};

/// The number before these words.
fn number(line: &str, words: &str) -> usize {
    let before = line.split(words).next().unwrap();
    before.split(|c: char| !c.is_ascii_digit()).next_back().unwrap().parse().unwrap()
}

#[test]
fn each_order_has_one_mail_though_worker_and_relay_are_killed() {
    let Output { status, stdout, stderr } = example("order_flow").output().unwrap();
    let (counted, shown) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{shown}{counted}");
    let lines: Vec<_> = counted.lines().collect();
    let [mails, last] = lines[..] else { panic!("{counted}") };
    assert!(last.starts_with("200 orders, 200 mails, 0 lost, 0 twice; "), "{last}");
    for role in ["worker killed ", "relay killed "] {
        let kills = number(last.split_once(role).unwrap().1, " times");
        assert!(kills >= 20, "{last}");
    }
    let [requests, failed, wrongly, not_waited_for] =
        [" requests for 200 mails", " failed", " answered wrongly", " not waited for"]
            .map(|words| number(mails, words));
    assert!(not_waited_for > 0, "a kill was in the middle of a mail: {mails}");
    // Nobody took a mail as sent before its API had said so.
    assert!(requests - failed - wrongly - not_waited_for >= 200, "{mails}");
}

#[tokio::test]
async fn told_to_stop_it_leaves_nothing_behind() {
    let mut process = example("order_flow");
    let process = process.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    let (mut queue, mut folder) = (String::new(), String::new());
    for line in lines.by_ref() {
        if let Some(queues) = line.strip_prefix("queues: ") {
            queue = queues.split(", ").next().unwrap().to_owned();
        }
        if let Some((_, place)) = line.split_once("?host=") {
            folder = place.split('&').next().unwrap().to_owned();
        }
        if line == "20 orders placed" {
            break;
        }
    }
    assert!(std::fs::exists(&folder).unwrap() && !serving(&queue).is_empty(), "{folder} {queue}");
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(lines.any(|line| line == "terminated"));
    assert_eq!(process.wait().unwrap().code(), Some(1));
    assert_eq!(serving(&queue), [0; 0], "processes");
    assert!(!std::fs::exists(&folder).unwrap());
    let client = Client::new(&sdk::load().await);
    client.get_queue_attributes().queue_url(&queue).send().await.unwrap_err();
}

/// The processes that serve this queue.
fn serving(queue: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let processes = processes.filter_map(|name| name.to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        // One that has ended meanwhile has none.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(queue.len()).any(|part| part == queue.as_bytes())
    };
    processes.filter(has_it).collect()
}

#[test]
fn without_an_emulator_it_says_how_to_start_one() {
    let (code, said) = run::<&str>(example("order_flow").env_remove("AWS_ENDPOINT_URL"), &[]);
    assert!(code == Some(1) && said.contains("ministack"), "{said}");
}
