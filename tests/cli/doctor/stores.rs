//! Stores that no template makes, looked at where they are.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Found, doctor};
use crate::server::Postgres;
use crate::{Folder, run};

/// Ends with its owner.
struct Redis(Child, u16, #[expect(dead_code, reason = "its files, until it ends")] Folder);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Redis {
    fn start(settings: &[&str]) -> Self {
        let folder = Folder::new();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--dir", &folder.0.display().to_string()])
            .args(settings)
            .stdout(Stdio::null())
            .spawn();
        let server = server.expect("redis-server is not installed; `make tools` installs it");
        Self(server, port, folder)
    }

    /// What is wrong with it, once that is `expected`, or time is over.
    #[allow(clippy::disallowed_methods, reason = "the server starts in the machine's time")]
    fn wrong(&self, expected: &[&str]) -> Vec<String> {
        let url = format!("redis://:s3cret@127.0.0.1:{}/1", self.1);
        let begun = Instant::now();
        loop {
            let found = Found::by(&[], Some(&url));
            assert!(!found.said.contains("s3cret"), "{}", found.said);
            let is_there = !found.codes("cannot-judge").contains(&"redis-evicts");
            if is_there && found.wrong() == expected || begun.elapsed() > Duration::from_secs(30) {
                return found.wrong().into_iter().map(str::to_owned).collect();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

const SOUND: [&str; 6] =
    ["--requirepass", "s3cret", "--appendonly", "yes", "--maxmemory-policy", "noeviction"];

fn but(setting: &str, value: &'static str) -> Vec<&'static str> {
    let mut settings = SOUND.to_vec();
    let at = settings.iter().position(|it| *it == setting).unwrap();
    settings[at + 1] = value;
    settings
}

#[test]
fn each_fault_of_a_redis_is_found_by_its_code_alone() {
    assert_eq!(Redis::start(&SOUND).wrong(&[]), [] as [&str; 0]);
    let evicts = but("--maxmemory-policy", "volatile-lru");
    assert_eq!(Redis::start(&evicts).wrong(&["redis-evicts"]), ["redis-evicts"]);
    let forgets = but("--appendonly", "no");
    assert_eq!(Redis::start(&forgets).wrong(&["redis-not-persistent"]), ["redis-not-persistent"]);
}

#[test]
fn replicas_that_nobody_waits_for_are_told() {
    let unconfirmed = ["redis-replicas-unconfirmed"];
    let first = Redis::start(&SOUND);
    assert_eq!(first.wrong(&[]), [] as [&str; 0]);
    let follows = format!("127.0.0.1 {}", first.1);
    let _second = Redis::start(&["--replicaof", &follows, "--masterauth", "s3cret"]);
    assert_eq!(first.wrong(&unconfirmed), unconfirmed);

    let waits = [&SOUND[..], &["--min-replicas-to-write", "1"]].concat();
    let first = Redis::start(&waits);
    let follows = format!("127.0.0.1 {}", first.1);
    let _second = Redis::start(&["--replicaof", &follows, "--masterauth", "s3cret"]);
    assert_eq!(first.wrong(&[]), [] as [&str; 0]);
}

#[test]
fn a_server_that_does_not_answer_is_not_judged() {
    let found = Found::by(&[], Some("redis://:s3cret@127.0.0.1:1/"));
    assert_eq!((found.code, found.wrong()), (Some(0), vec![]), "{}", found.said);
    assert!(found.codes("cannot-judge").contains(&"redis-evicts"), "{}", found.said);
    assert!(!found.said.contains("s3cret"), "{}", found.said);
}

#[test]
fn a_store_without_its_tables_is_told_until_it_is_set_up() {
    let folder = Folder::new();
    let server = Postgres::start();
    let file = format!("sqlite:{}", folder.0.join("records.db").display());
    for store in [file, server.url()] {
        let found = Found::by(&[], Some(&store));
        assert_eq!(
            (found.code, found.wrong()),
            (Some(1), vec!["store-not-set-up"]),
            "{}",
            found.said
        );
        let (_, said) = doctor(&[], Some(&store));
        assert!(said.contains("onlyonce setup"), "{said}");
        run(crate::onlyonce(&folder.0).env("ONLYONCE_STORE", &store), &["setup"]);
        let found = Found::by(&[], Some(&store));
        assert_eq!((found.code, found.wrong()), (Some(0), vec![]), "{}", found.said);
    }
}
