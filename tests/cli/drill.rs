//! The drill, played whole: on an emulator that it starts itself, on a deployment, under load, and
//! broken off.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::store::DynamoStore;
use serde_json::Value;

use crate::queue::Queue;
use crate::{Folder, onlyonce, root, run};

/// Its variable is in the environment of all that a drill starts.
const MARK: &str = "ONLYONCE_CLI_DRILL";

/// A drill, and what tells its processes from others'.
fn drill(folder: &Folder) -> (Command, String) {
    let mark = format!("{MARK}={}", folder.0.display());
    let mut command = onlyonce(&folder.0);
    command.arg("drill").env(MARK, &folder.0).env_remove("ONLYONCE_STORE");
    (command, mark)
}

/// The processes that this mark is on, other than zombies.
fn marked(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|it| it == mark.as_bytes()) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

/// Waits until something is so.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let give_up = SystemClock.now() + Duration::from_secs(60);
    while !is() {
        assert!(SystemClock.now() < give_up, "not in a minute: {what}");
        SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(50)).await;
    }
}

/// Waits until a drill's workers are there, and so its queues and its table.
async fn until_it_plays(playing: &mut Process, mark: &str) {
    until("three workers", || {
        assert!(playing.0.try_wait().unwrap().is_none(), "it ended by itself");
        marked(mark).iter().filter(|line| line.contains("--serve")).count() >= 3
    })
    .await;
}

/// The document, and the exit status.
fn played(command: &mut Command, arguments: &[&str]) -> (Value, Option<i32>) {
    let done = command.args(["--json"]).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let document = serde_json::from_slice(&done.stdout);
    (document.unwrap_or_else(|error| panic!("{error}: {said}")), done.status.code())
}

fn names(document: &Value, list: &str, name: &str) -> BTreeSet<String> {
    let list = document[list].as_array().unwrap().iter();
    list.map(|it| it[name].as_str().unwrap().to_owned()).collect()
}

#[test]
fn it_starts_what_it_needs_plays_everything_and_holds() {
    let folder = Folder::new();
    let page = folder.0.join("drill.html");
    let (mut command, mark) = drill(&folder);
    command.env_remove("AWS_ENDPOINT_URL");
    let (report, code) = played(&mut command, &["--local", "--html", page.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{}", report["invariants"]);
    assert_eq!((&report["holds"], report["broken"].as_array().unwrap().len()), (&true.into(), 0));
    assert_eq!(report["invariants"].as_array().unwrap().len(), 11);
    let took = report["took_ms"].as_u64().unwrap();
    assert!(took < 120_000, "it took {took} ms");
    // Each of them dies once, and no other.
    assert_eq!(report["workers_died"], 10);

    let scenarios = names(&report, "scenarios", "scenario");
    assert_eq!(scenarios.len(), 14, "{scenarios:?}");
    for it in report["scenarios"].as_array().unwrap() {
        let (name, keys) = (it["scenario"].as_str().unwrap(), it["keys"].as_u64().unwrap());
        let crashes = if name.starts_with("killed-") { keys } else { 0 };
        assert_eq!(it["crashes"], crashes, "{name}");
        // It was on its way when the worker died: nobody knows, and it is not called again.
        let effects = if name == "killed-at-most-once" { 0 } else { keys };
        assert_eq!(it["effects"], effects, "{name}");
        let calls = match name {
            "killed-in-effect" | "killed-after-effect" | "late-worker" => keys * 2,
            _ => keys,
        };
        assert_eq!(it["calls"], calls, "{name}");
        let end = if name == "killed-at-most-once" { "unknown" } else { "completed" };
        assert_eq!(it["ends"][end], keys, "{name}");
        let dead = if matches!(name, "mismatch" | "killed-at-most-once") { keys } else { 0 };
        assert_eq!(it["dead_letters"], dead, "{name}");
    }
    let late = report["keys"].as_array().unwrap();
    let late = late.iter().find(|key| key["key"] == "late-worker/0").unwrap();
    let what: Vec<_> =
        late["events"].as_array().unwrap().iter().filter_map(|it| it["what"].as_str()).collect();
    let after = what.iter().position(|it| *it == "went-on").unwrap();
    assert_eq!(what.get(after + 1), Some(&"refused"), "{what:?}");

    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("role=\"img\"").count(), report["keys"].as_array().unwrap().len());
    assert_eq!(page.matches("HOLDS: every invariant").count(), 2, "above, and at the end");
    for outside in ["http://", "https://", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "it needs {outside:?}");
    }
    for name in scenarios {
        assert!(page.contains(&format!("<h3>{name}/0</h3>")), "{name}");
    }
    assert_eq!(marked(&mark), Vec::<String>::new(), "nothing is left running");
}

#[test]
fn under_load_each_key_is_done_once_and_its_time_is_told() {
    let folder = Folder::new();
    let arguments = ["--local", "--load", "200", "--copies", "3"];
    let (report, code) = played(&mut drill(&folder).0, &arguments);
    assert_eq!(code, Some(0), "{}", report["invariants"]);
    let load = &report["load"];
    for (name, value) in [
        ("keys", 200),
        ("messages", 600),
        ("calls", 200),
        ("effects", 200),
        ("double_calls", 0),
        ("double_effects", 0),
    ] {
        assert_eq!(load[name], value, "{name}");
    }
    let ms = |name: &str| load[name].as_u64().unwrap();
    assert!(0 < ms("p50_ms") && ms("p50_ms") <= ms("p95_ms") && ms("p95_ms") <= ms("p99_ms"));
    assert!(ms("p99_ms") <= ms("longest_ms") && ms("done_ms") <= ms("drained_ms"));
    assert!(load["jobs_per_second"].as_f64().unwrap() > 0.0);
    assert!(report["keys"].as_array().unwrap().len() <= 3, "not each of thousands is told");
}

/// A worker of a deployment: it polls, with or without its part in the drill.
fn deployed(queue: &Queue, dlq: &Queue, table: &str) -> Process {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    worker.args(["drill", "--serve"]).current_dir(root());
    worker.env("ONLYONCE_STORE", format!("dynamodb://{table}"));
    worker.env("ONLYONCE_QUEUE_URL", &queue.url).env("ONLYONCE_DLQ_URL", &dlq.url);
    worker.env("ONLYONCE_DRILL", "1").env("ONLYONCE_NAMESPACE", "drill");
    worker.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(worker.spawn().unwrap())
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_deployment_takes_part_if_its_worker_is_in_drill_mode() {
    let (queue, dlq) = (Queue::new().await, Queue::new().await);
    let folder = Folder::new();
    let table = format!("drill-{:016x}", fastrand::Rng::new().u64(..));
    DynamoStore::new(&queue.sdk, &table).create_table(&SystemClock).await.unwrap();
    let on_it = |arguments: &[&str]| {
        let mut command = drill(&folder).0;
        command.env("ONLYONCE_STORE", format!("dynamodb://{table}"));
        command.args(["--queue-url", &queue.url, "--dlq-url", &dlq.url]).args(arguments);
        command
    };
    let (code, said) = run(&mut on_it(&["--timeout", "10"]), &["--only", "mismatch"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("not in drill mode") && said.contains("ONLYONCE_DRILL=1"), "{said}");

    let _workers = [deployed(&queue, &dlq, &table), deployed(&queue, &dlq, &table)];
    let only = ["--timeout", "60", "--only", "mismatch", "--only", "copies-later"];
    let (report, code) = played(&mut on_it(&[]), &only);
    assert_eq!(code, Some(0), "{}", report["invariants"]);
    assert_eq!(report["place"], queue.url);
    let names = names(&report, "scenarios", "scenario");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["copies-later", "mismatch"]);
    assert_eq!((queue.len().await, dlq.len().await), (0, 0), "its dead letters are taken out");
}

#[tokio::test]
async fn broken_off_it_leaves_nothing() {
    let folder = Folder::new();
    let (mut command, mark) = drill(&folder);
    command.args(["--local", "--only", "late-worker"]);
    let mut playing =
        Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    until_it_plays(&mut playing, &mark).await;
    let pid = playing.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    until("its end", || playing.0.try_wait().unwrap().is_some()).await;
    let ended = playing.0.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut playing.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("interrupted") && !said.contains("is left"), "{said}");
    assert_eq!(marked(&mark), Vec::<String>::new());
}

#[tokio::test]
async fn a_drill_that_is_killed_takes_its_processes_along() {
    let folder = Folder::new();
    let (mut command, mark) = drill(&folder);
    command.env_remove("AWS_ENDPOINT_URL").args(["--local", "--only", "late-worker"]);
    let mut playing = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_it_plays(&mut playing, &mark).await;
    playing.0.kill().unwrap();
    playing.0.wait().unwrap();
    until("its processes' end", || marked(&mark).is_empty()).await;
}

#[test]
fn without_an_emulator_it_says_where_to_get_one() {
    let folder = Folder::new();
    let (mut command, _) = drill(&folder);
    command.current_dir(&folder.0).env("PATH", &folder.0).env_remove("AWS_ENDPOINT_URL");
    let (code, said) = run(&mut command, &["--local"]);
    assert!(code == Some(1) && said.contains("pip install ministack"), "{said}");
}

#[test]
fn an_emulator_that_does_not_start_says_why() {
    let folder = Folder::new();
    let program = folder.file("ministack", "#!/bin/sh\necho 'the port is taken' >&2\nexit 3\n");
    let run_by_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(program, run_by_all).unwrap();
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap());
    let (mut command, mark) = drill(&folder);
    command.env("PATH", path).env_remove("AWS_ENDPOINT_URL");
    let (code, said) = run(&mut command, &["--local"]);
    assert!(code == Some(1) && said.contains("the port is taken"), "{said}");
    assert!(said.contains("ended at its start") && said.contains("AWS_ENDPOINT_URL"), "{said}");
    assert_eq!(marked(&mark), Vec::<String>::new());
}

/// The process of one of a drill's workers.
fn a_worker(mark: &str) -> Option<u32> {
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let has = |name, part: &str| {
            let text = std::fs::read(entry.path().join(name)).unwrap_or_default();
            text.split(|byte| *byte == 0).any(|it| it == part.as_bytes())
        };
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (has("environ", mark) && has("cmdline", "--serve")).then_some(pid)
    })
}

#[tokio::test]
async fn workers_that_die_by_themselves_end_the_drill() {
    let folder = Folder::new();
    let (mut command, mark) = drill(&folder);
    command.args(["--local", "--only", "late-worker"]);
    let mut playing =
        Process(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    until_it_plays(&mut playing, &mark).await;
    // Three are made up for; none of this scenario is to die.
    until("its end", || {
        if let Some(pid) = a_worker(&mark) {
            // It may have ended since.
            let _ = Command::new("kill").args(["-SEGV", &pid.to_string()]).output().unwrap();
        }
        playing.0.try_wait().unwrap().is_some()
    })
    .await;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut playing.0.stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("a worker of the drill cannot run: signal: 11"), "{said}");
    assert_eq!(playing.0.wait().unwrap().code(), Some(1), "{said}");
    assert_eq!(marked(&mark), Vec::<String>::new());
}

#[test]
fn wrong_usage_is_told_from_a_broken_invariant() {
    let folder = Folder::new();
    for (arguments, says) in [
        (&[][..], "--local"),
        (&["--local", "--queue-url", "http://127.0.0.1:1/q"], "cannot be used with"),
        (&["--local", "--only", "sunshine"], "killed-after-claim"),
        (&["--local", "--only", "probe"], "no such scenario"),
        (&["--queue-url", "http://127.0.0.1:1/q", "--load", "10"], "cannot be used with"),
        (&["--queue-url", "http://127.0.0.1:1/q", "--only", "late-worker"], "with --local alone"),
        (&["--local", "--copies", "3"], "--load"),
        (&["--local", "--load", "0"], "1..="),
        (&["--local", "--load", "10", "--only", "mismatch"], "cannot be used with"),
    ] {
        let (code, said) = run(&mut drill(&folder).0, arguments);
        assert!(code == Some(2) && said.contains(says), "{arguments:?}: {code:?} {said}");
    }
    let url = ["--queue-url", "http://127.0.0.1:1/q"];
    let (code, said) = run(&mut drill(&folder).0, &url);
    assert!(code == Some(2) && said.contains("--dlq-url"), "{said}");
    let mut elsewhere = onlyonce(&folder.0);
    let arguments = ["drill", "--dlq-url", "http://127.0.0.1:1/d"];
    let (code, said) = run(elsewhere.args(arguments), &url);
    assert!(code == Some(2) && said.contains("dynamodb://TABLE"), "{said}");
}

#[test]
fn a_worker_that_plays_crashes_starts_in_its_namespace_alone() {
    let folder = Folder::new();
    let job = "[job.\"order.reserve\"]\neffect = \"row\"\nguarantee = \"transactional\"\n\
        table = \"stock\"\nkey = { sku = \"{sku}\" }\nadd = { available = \"-{quantity}\" }\n";
    let jobs = folder.file("jobs.toml", job);
    let start = |namespace: &str, store: &str| {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
        worker.env("ONLYONCE_DRILL", "1").env("ONLYONCE_NAMESPACE", namespace);
        worker.env("ONLYONCE_STORE", store).env("ONLYONCE_JOBS", Path::new(&jobs));
        run::<&str>(&mut worker, &[])
    };
    let (code, said) = start("default", "dynamodb://t");
    assert!(code == Some(1) && said.contains("ONLYONCE_NAMESPACE=drill"), "{said}");
    let (code, said) = start("drill", "memory:");
    assert!(code == Some(1) && said.contains("dynamodb://TABLE"), "{said}");
}
