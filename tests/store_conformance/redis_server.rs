//! A Redis of the test's own, and the store on it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{
    Change, ConditionalWrite, EpochSeconds, Expect, Failure, Field, Held, Output, Retention,
    RetryPolicy, Rev, Status, Timestamp, complete, fail,
};
use onlyonce::store::redis::RedisWrite;
use onlyonce::store::{Commit, RedisStore, StagedWrite, Store};

use crate::kept::Kept;
use crate::outage::Server;
use crate::records::{NOW, SECOND, effects, first_claim};
use crate::scratch::Scratch;

/// How long it may take to start on a busy machine.
const STARTING: Duration = Duration::from_secs(30);

/// Its process, which ends with its owner, and its folder.
pub struct RedisServer {
    process: Child,
    folder: Scratch,
}

impl RedisServer {
    /// Keeps everything on the disk before it answers.
    pub fn start() -> Self {
        let folder = Scratch::new();
        Self { process: spawn(&folder, &[]), folder }
    }

    /// The same, at a port as well, and with more settings.
    fn start_at(port: u16, more: &[&str]) -> Self {
        let folder = Scratch::new();
        let port = port.to_string();
        Self { process: spawn(&folder, &[&["--port", &port], more].concat()), folder }
    }

    /// At a socket: there is no port to be taken by another program.
    pub fn url(&self) -> String {
        format!("unix://{}", socket(&self.folder))
    }

    pub fn store(&self) -> RedisStore {
        RedisStore::open(&self.url()).unwrap()
    }

    /// Past the store, as another program.
    pub fn foreign(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Forgets everything.
    #[cfg(all(feature = "dynamodb", feature = "sqlite"))]
    pub fn flush(&self) {
        let _: String = redis::cmd("FLUSHALL").query(&mut self.foreign()).unwrap();
    }

    fn signal(&self, name: &str) {
        let words = [format!("-{name}"), self.process.id().to_string()];
        assert!(Command::new("kill").args(words).status().unwrap().success());
    }
}

impl Server for RedisServer {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(RedisServer::store(self))
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::fs::remove_file(socket(&self.folder)).unwrap();
    }

    fn restart(&mut self) {
        self.process = spawn(&self.folder, &[]);
    }
}

fn socket(folder: &Scratch) -> String {
    folder.0.join("redis.sock").display().to_string()
}

#[allow(clippy::disallowed_methods, reason = "it starts in the machine's time")]
fn spawn(folder: &Scratch, more: &[&str]) -> Child {
    let mut process = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", "always"])
        .args(["--unixsocket", &socket(folder), "--dir", &folder.0.display().to_string()])
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is not installed; `make tools` installs it");
    let begun = Instant::now();
    while UnixStream::connect(socket(folder)).is_err() {
        assert!(begun.elapsed() < STARTING, "redis-server did not start in time");
        assert!(process.try_wait().unwrap().is_none(), "redis-server did not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    process
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store on a server of its own.
pub async fn store() -> Arc<dyn Store> {
    let server = RedisServer::start();
    Arc::new(Kept { store: Arc::new(server.store()), _keeps: server })
}

async fn claimed(store: &RedisStore) -> Held {
    let (write, held) = first_claim("k", "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    held
}

fn done(held: &Held) -> ConditionalWrite {
    complete(held, Output::Omitted, Retention::Forever, NOW).0
}

fn key_of(held: &Held) -> String {
    format!("{{onlyonce}}:record:{}", held.id)
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(word);
    });
    command.query(&mut server.foreign()).unwrap()
}

#[tokio::test]
async fn a_record_is_a_hash_that_a_person_can_read() {
    let server = RedisServer::start();
    let held = claimed(&server.store()).await;
    let hash: BTreeMap<String, String> = ask(&server, &["HGETALL", &key_of(&held)]);
    let shown = |name: &str| hash[name].as_str();
    assert_eq!((shown("key"), shown("job"), shown("namespace")), ("k", "job", "default"));
    assert_eq!((shown("status"), shown("claim_id"), shown("v")), ("claimed", "first", "1"));
    assert_eq!((shown("token"), shown("rev"), shown("effects")), ("1", "1", "{}"));
    assert_eq!(shown("lease_until"), (NOW + SECOND * 30).millis().to_string());
    assert!(!hash.contains_key("error"), "what is not there has no field: {hash:?}");
}

#[tokio::test]
async fn fields_of_a_later_version_survive_an_update() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let _: i64 = ask(&server, &["HSET", &key_of(&held), "later", "kept"]);
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    let kept: String = ask(&server, &["HGET", &key_of(&held), "later"]);
    assert_eq!(kept, "kept");
}

#[tokio::test]
async fn a_record_of_a_later_version_fails_closed_also_to_its_own_claim() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let _: i64 = ask(&server, &["HSET", &key_of(&held), "v", "2"]);
    for write in [first_claim("k", "second").0, done(&held)] {
        let error = store.commit(&write, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record);
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}

#[tokio::test]
async fn a_field_that_cannot_be_read_is_named() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let _: i64 = ask(&server, &["HSET", &key_of(&held), "lease_until", "soon"]);
    let error = store.load(&held.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record);
    assert!(error.to_string().contains("field lease_until"), "{error}");
}

/// When its key is gone, in ms; `None` for never.
fn expiry(server: &RedisServer, held: &Held) -> Option<i64> {
    let at: i64 = ask(server, &["PEXPIRETIME", &key_of(held)]);
    assert_ne!(at, -2, "there is a key");
    (at >= 0).then_some(at)
}

#[tokio::test]
async fn a_records_ttl_follows_its_expiry_and_outlives_its_lease() {
    let server = RedisServer::start();
    let store = server.store();
    let (mut write, held) = first_claim("k", "first");
    let Change::Create(record) = &mut write.change else { panic!("not a creation") };
    let lease = i64::try_from(record.lease_until.millis()).unwrap();
    // Shorter than the lease, which no retention can make it.
    record.expires_at = Some(EpochSeconds::from_secs(NOW.millis() / 1000));
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(expiry(&server, &held), Some(lease + 600_000));

    // Longer: as it is said.
    let fields = |rev, at: Option<u64>| {
        vec![Field::Rev(Rev(rev)), Field::ExpiresAt(at.map(EpochSeconds::from_secs))]
    };
    let update = |rev: u64, at| ConditionalWrite {
        id: held.id.clone(),
        expect: Expect::At { claim_id: held.claim_id.clone(), rev: Rev(rev) },
        change: Change::Update(fields(rev + 1, at)),
    };
    for (rev, at) in
        [(1, Some(2_000_000_000)), (2, None), (3, Some(u64::MAX)), (4, Some(2_100_000_000))]
    {
        assert_eq!(store.commit(&update(rev, at), &[]).await.unwrap(), Commit::Applied);
        let there = expiry(&server, &held).map(|ms| u64::try_from(ms).unwrap());
        assert_eq!(there, at.filter(|at| *at < u64::MAX).map(|at| at * 1000));
    }

    // A renewed lease alone moves it as well.
    let late = Timestamp::from_millis(2_200_000_000_000);
    let renewed = ConditionalWrite {
        change: Change::Update(vec![Field::Rev(Rev(6)), Field::LeaseUntil(late)]),
        ..update(5, None)
    };
    assert_eq!(store.commit(&renewed, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(expiry(&server, &held), Some(2_200_000_600_000));
}

#[tokio::test]
async fn what_must_not_be_forgotten_has_no_ttl() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    assert!(expiry(&server, &held).is_some());
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    assert_eq!(expiry(&server, &held), None, "kept for ever");

    let policy = || (RetryPolicy::fixed(SECOND, 5), Retention::default());
    let end = async |key: &str, failure: &Failure, effects| {
        let (write, held) = first_claim(key, "first");
        store.commit(&write, &[]).await.unwrap();
        let held = Held { effects, ..held };
        let (retry, kept) = policy();
        let (write, _) = fail(&held, failure, "no".to_owned(), (&retry, kept), NOW, 0.0);
        assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        (store.load(&held.id).await.unwrap().unwrap().status, expiry(&server, &held))
    };
    let unknown = end("u", &Failure::Unknown, BTreeMap::new()).await;
    assert_eq!(unknown, (Status::Unknown, None));
    let open = end("i", &Failure::Retryable, effects()).await;
    assert_eq!(open, (Status::Released, None), "an open intent");
    let failed = end("f", &Failure::Terminal, BTreeMap::new()).await;
    assert!(failed.1.is_some(), "{failed:?}");
}

#[tokio::test]
async fn what_has_expired_leaves_the_index() {
    let server = RedisServer::start();
    let store = server.store();
    let park = async |n: u32| {
        let (mut write, held) = first_claim(&format!("failed {n}"), "first");
        let Change::Create(record) = &mut write.change else { panic!("not a creation") };
        Field::Status(Status::Failed).apply(record);
        Field::UpdatedAt(NOW + SECOND * n).apply(record);
        assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        held
    };
    let listed = || ask::<i64>(&server, &["ZCARD", "{onlyonce}:parked:failed"]);
    let mut all = Vec::new();
    for n in 0..6 {
        all.push(park(n).await);
    }
    // As Redis drops them once their time is over.
    for held in &all[..3] {
        let _: i64 = ask(&server, &["DEL", &key_of(held)]);
    }
    assert_eq!(listed(), 6);
    let page = store.scan(Status::Failed, None, 2).await.unwrap();
    assert_eq!(page.records.len(), 0, "the first two are gone, and say so by going on");
    let rest = store.scan(Status::Failed, page.next, 10).await.unwrap();
    let keys: Vec<_> = rest.records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["failed 3", "failed 4", "failed 5"]);
    assert_eq!(listed(), 3);

    // So does what is parked no longer.
    let (_, held) = first_claim("failed 5", "first");
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    assert_eq!(listed(), 2);

    // Without anybody looking, too: each that comes takes some along.
    for held in &all[3..] {
        let _: i64 = ask(&server, &["DEL", &key_of(held)]);
    }
    for n in 6..60 {
        park(n).await;
    }
    assert!(listed() < 56, "{}", listed());
}

#[tokio::test]
async fn writes_of_its_own_land_with_the_completion_or_not_at_all() {
    let server = RedisServer::start();
    let store = server.store();
    let fields = |value: &str| BTreeMap::from([("sku".to_owned(), value.to_owned())]);
    let key = str::to_owned;
    let all = || {
        vec![
            RedisWrite::Set { key: key("greeting"), value: key("höi\0\n") },
            RedisWrite::SetIfAbsent { key: key("order:1"), value: key("{}") },
            RedisWrite::Add { key: key("stock"), by: 5, floor: None },
            RedisWrite::Add { key: key("stock"), by: -2, floor: Some(3) },
            RedisWrite::HashSet { key: key("cup"), fields: fields("cup") },
            RedisWrite::StreamAdd { key: key("orders"), fields: fields("cup") },
        ]
    };
    let commit = async |name: &str, writes: Vec<RedisWrite>| {
        let (write, held) = first_claim(name, "first");
        store.commit(&write, &[]).await.unwrap();
        let staged: Vec<_> = writes.into_iter().map(StagedWrite::from).collect();
        let commit = store.commit(&done(&held), &staged).await.unwrap();
        let status = store.load(&held.id).await.unwrap().unwrap().status;
        assert_eq!(status == Status::Completed, commit == Commit::Applied, "they go together");
        if commit == Commit::Applied {
            let again = store.commit(&done(&held), &staged).await.unwrap();
            assert!(matches!(again, Commit::Conflict(Some(_))), "a copy: {again:?}");
        }
        commit
    };
    let shows = || {
        let (greeting, stock): (String, i64) = ask(&server, &["MGET", "greeting", "stock"]);
        let orders: i64 = ask(&server, &["XLEN", "orders"]);
        let sku: Option<String> = ask(&server, &["HGET", "cup", "sku"]);
        (greeting, stock, orders, sku.unwrap_or_default())
    };
    assert_eq!(commit("one", all()).await, Commit::Applied);
    assert_eq!(shows(), (key("höi\0\n"), 3, 1, key("cup")));

    // What is refused is refused before anything is written, whatever comes before it.
    let refused = [
        RedisWrite::SetIfAbsent { key: key("order:1"), value: key("") },
        RedisWrite::Add { key: key("stock"), by: -9, floor: Some(0) },
        RedisWrite::Add { key: key("greeting"), by: 1, floor: None },
        RedisWrite::Add { key: key("cup"), by: 1, floor: None },
        RedisWrite::Add { key: key("stock"), by: (1 << 53) - 1, floor: None },
        RedisWrite::HashSet { key: key("stock"), fields: fields("mug") },
        RedisWrite::StreamAdd { key: key("cup"), fields: fields("mug") },
        RedisWrite::Delete { key: key("nothing") },
    ];
    for (n, wrong) in refused.into_iter().enumerate() {
        let first = RedisWrite::Set { key: key("greeting"), value: key("bye") };
        let told = format!("{wrong:?}");
        let commit = commit(&format!("refused {n}"), vec![first, wrong]).await;
        assert_eq!(commit, Commit::Refused { index: 1 }, "{told}");
        assert_eq!(shows(), (key("höi\0\n"), 3, 1, key("cup")), "{told}");
    }

    // One after another: each sees what the one before it has done.
    let delete = RedisWrite::Delete { key: key("cup") };
    let stream = RedisWrite::StreamAdd { key: key("cup"), fields: fields("mug") };
    assert_eq!(commit("anew", vec![delete.clone(), stream]).await, Commit::Applied);
    assert_eq!(commit("twice", vec![delete.clone(), delete]).await, Commit::Refused { index: 1 });
}

/// Redis takes nothing back: whatever the keys hold, nothing may fail half-way.
#[tokio::test]
async fn whatever_is_staged_on_whatever_is_there_lands_whole_or_not_at_all() {
    let server = RedisServer::start();
    let store = server.store();
    let mut rng = fastrand::Rng::with_seed(6);
    let keys = ["a", "b"];
    let texts =
        ["", "5", "-5", "05", "+5", " 5", "5.0", "1e3", "-0", "nan", "9007199254740991", "x"];
    let numbers = [0, 1, -1, 7, -7, (1 << 53) - 1, -(1 << 53) + 1];
    let fields = || BTreeMap::from([("sku".to_owned(), "cup".to_owned())]);
    let mut ends = [0, 0];
    for n in 0..600 {
        for key in keys {
            let text = texts[rng.usize(..texts.len())];
            let there: [&[&str]; 6] = [
                &["DEL", key],
                &["SET", key, text],
                &["SET", key, text, "PX", "100000"],
                &["HSET", key, "sku", text],
                &["XADD", key, "*", "sku", text],
                &["LPUSH", key, text],
            ];
            let _: redis::Value = ask(&server, &["DEL", key]);
            let _: redis::Value = ask(&server, there[rng.usize(..there.len())]);
        }
        let staged: Vec<_> = (0..rng.usize(1..5))
            .map(|_| {
                let key = keys[rng.usize(..keys.len())].to_owned();
                let value = texts[rng.usize(..texts.len())].to_owned();
                let by = numbers[rng.usize(..numbers.len())];
                let floor = rng.bool().then(|| numbers[rng.usize(..numbers.len())]);
                StagedWrite::from(match rng.u8(..6) {
                    0 => RedisWrite::Set { key, value },
                    1 => RedisWrite::SetIfAbsent { key, value },
                    2 => RedisWrite::Add { key, by, floor },
                    3 => RedisWrite::HashSet { key, fields: fields() },
                    4 => RedisWrite::StreamAdd { key, fields: fields() },
                    _ => RedisWrite::Delete { key },
                })
            })
            .collect();
        let (write, held) = first_claim(&format!("k{n}"), "first");
        store.commit(&write, &[]).await.unwrap();
        let seen = || keys.map(|key| ask::<Option<Vec<u8>>>(&server, &["DUMP", key]));
        let before = seen();
        let commit = store.commit(&done(&held), &staged).await.unwrap();
        let status = store.load(&held.id).await.unwrap().unwrap().status;
        let is_applied = commit == Commit::Applied;
        assert_eq!(status == Status::Completed, is_applied, "{staged:?}");
        assert!(is_applied || seen() == before, "{staged:?}");
        ends[usize::from(is_applied)] += 1;
    }
    assert!(ends.into_iter().all(|ended| ended > 100), "{ends:?}");
}

/// Redis takes nothing back: what a user may not do has to be known before anything is done.
#[tokio::test]
async fn a_command_that_is_forbidden_leaves_nothing_half_done() {
    let server = RedisServer::start();
    let held = claimed(&server.store()).await;
    let staged = || {
        let fields = BTreeMap::from([("sku".to_owned(), "cup".to_owned())]);
        let stream = RedisWrite::StreamAdd { key: "orders".to_owned(), fields };
        let set = RedisWrite::Set { key: "greeting".to_owned(), value: "hi".to_owned() };
        [StagedWrite::from(set), stream.into()]
    };
    for forbidden in ["-xadd", "-persist", "-zrem", "~{onlyonce}:*"] {
        let keys = if forbidden.starts_with('~') { forbidden } else { "~*" };
        let rule = if forbidden.starts_with('~') { "+@all" } else { forbidden };
        let words = ["ACL", "SETUSER", "some", "reset", "on", ">s3cret", keys, "+@all", rule];
        let _: String = ask(&server, &words);
        let store = RedisStore::open(&format!("{}?user=some&pass=s3cret", server.url())).unwrap();
        let error = store.commit(&done(&held), &staged()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreRefused, "{forbidden}: {error}");
        let record = store.load(&held.id).await.unwrap().unwrap();
        assert_eq!(record.status, Status::Claimed, "{forbidden}");
        let greeting: Option<String> = ask(&server, &["GET", "greeting"]);
        assert_eq!(greeting, None, "{forbidden}");
    }
}

/// The third version of the protocol answers maps where the second answers lists.
#[tokio::test]
async fn both_versions_of_the_protocol_will_do() {
    let server = RedisServer::start();
    let store = RedisStore::open(&format!("{}?protocol=resp3", server.url())).unwrap();
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let held = claimed(&store).await;
    let again = store.commit(&first_claim("k", "second").0, &[]).await.unwrap();
    let loaded = store.load(&held.id).await.unwrap();
    assert_eq!(again, Commit::Conflict(loaded.map(Box::new)));
    let policy = (&RetryPolicy::fixed(SECOND, 5), Retention::default());
    let (failed, _) = fail(&held, &Failure::Terminal, "no".to_owned(), policy, NOW, 0.0);
    assert_eq!(store.commit(&failed, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(store.scan(Status::Failed, None, 9).await.unwrap().records.len(), 1);
}

/// Redis forgets them with a restart, and whenever an operator says so.
#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_loaded_again() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let _: String = ask(&server, &["SCRIPT", "FLUSH"]);
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a server is as fast as the machine")]
async fn a_server_that_went_away_is_found_again() {
    let mut server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    server.kill();
    for _ in 0..2 {
        let error = store.commit(&done(&held), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    }
    server.restart();
    // The record was on the disk, which takes a moment to be read.
    let begun = Instant::now();
    let commit = loop {
        match store.commit(&done(&held), &[]).await {
            Ok(commit) => break commit,
            Err(error) => assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}"),
        }
        assert!(begun.elapsed() < STARTING);
        tokio::task::yield_now().await;
    };
    assert_eq!(commit, Commit::Applied);
}

/// It takes what is sent and says nothing, as the other end of a connection does that a freeze has
/// outlived.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "a server is as fast as the machine")]
async fn a_silent_server_is_given_up_in_time_and_its_connection_with_it() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let connected = || {
        let info: String = ask(&server, &["INFO", "stats"]);
        let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse::<u32>().unwrap()
    };
    let before = connected();
    server.signal("STOP");
    let begun = Instant::now();
    let error = store.commit(&done(&held), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    server.signal("CONT");
    // It has landed meanwhile, or not: either way the next one knows.
    match store.commit(&done(&held), &[]).await.unwrap() {
        Commit::Applied => {}
        Commit::Conflict(Some(record)) => assert!(done(&held).already_in(&record)),
        other => panic!("{other:?}"),
    }
    // One for the store, one for each look.
    assert_eq!(connected(), before + 2);
}

#[tokio::test]
async fn what_the_server_says_is_told_apart() {
    let server = RedisServer::start();
    let store = server.store();
    let held = claimed(&store).await;
    let set = |name: &str, value: &str| {
        let _: String = ask(&server, &["CONFIG", "SET", name, value]);
    };
    // Full, and it evicts nothing.
    set("maxmemory", "1");
    let error = store.commit(&done(&held), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.to_string().contains("OOM"), "{error}");
    set("maxmemory", "0");
    // Too few replicas: nothing is written.
    set("min-replicas-to-write", "1");
    let error = store.commit(&done(&held), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    set("min-replicas-to-write", "0");
    // A replica, which takes no writes.
    let _: String = ask(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = store.commit(&done(&held), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
    let _: String = ask(&server, &["REPLICAOF", "NO", "ONE"]);
    assert_eq!(store.load(&held.id).await.unwrap().unwrap().status, Status::Claimed);
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);

    // A user without rights, and one without the right password.
    let _: String = ask(&server, &["ACL", "SETUSER", "poor", "on", ">s3cret", "~*", "+get"]);
    for (user, password) in [("poor", "s3cret"), ("poor", "wr0ng"), ("nobody", "s3cret")] {
        let url = format!("{}?user={user}&pass={password}", server.url());
        let store = RedisStore::open(&url).unwrap();
        let error = store.commit(&first_claim("x", "y").0, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
        let shown = format!("{error} {error:?} {store:?}");
        assert!(!shown.contains(password), "{shown}");
    }
    // Something else under the record's key.
    let _: String = ask(&server, &["SET", &key_of(&held), "not a hash"]);
    let error = store.load(&held.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
}

#[tokio::test]
async fn a_policy_that_evicts_is_warned_of() {
    let server = RedisServer::start();
    let store = server.store();
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let _: String = ask(&server, &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    let risks = store.check().await.unwrap();
    assert!(risks.len() == 1 && risks[0].contains("volatile-lru"), "{risks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_run_in_which_redis_is_killed_again_and_again_every_job_is_done_once() {
    let mut server = RedisServer::start();
    // A reservation is its record alone here.
    crate::outages::all_is_done_once(&mut server, |_| Vec::new()).await;
}

/// Ports that nobody has at the moment. Another program may take one before it is used: then the
/// server does not start, and says so.
fn free_ports<const N: usize>() -> [u16; N] {
    let bound: [_; N] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    bound.map(|listener| listener.local_addr().unwrap().port())
}

/// Waits for a server's own work, which says nothing when it is done.
#[allow(clippy::disallowed_methods, reason = "it happens in the machine's time")]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < STARTING, "not {what} in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two nodes, of which the second has the one slot. Any may be named; keys elsewhere are refused.
#[tokio::test]
async fn on_a_cluster_the_node_that_has_the_slot_is_found() {
    let [one, other, bus, other_bus] = free_ports();
    let node = |port: u16, bus: u16| {
        let bus = bus.to_string();
        let more = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        RedisServer::start_at(port, &more)
    };
    let (first, second) = (node(one, bus), node(other, other_bus));
    let slot: u16 = ask(&first, &["CLUSTER", "KEYSLOT", "{onlyonce}:record:x"]);
    let take = |server: &RedisServer, from: u16, to: u16| {
        let (from, to) = (from.to_string(), to.to_string());
        let _: String = ask(server, &["CLUSTER", "ADDSLOTSRANGE", &from, &to]);
    };
    take(&first, 0, slot - 1);
    take(&first, slot + 1, 16383);
    take(&second, slot, slot);
    let (port, bus) = (other.to_string(), other_bus.to_string());
    let _: String = ask(&first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    until("a cluster", || {
        [&first, &second].iter().all(|server| {
            let info: String = ask(server, &["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        })
    });

    let store = RedisStore::open(&format!("redis://127.0.0.1:{one}")).unwrap();
    let (write, held) = first_claim("k", "first");
    let moved = store.commit(&write, &[]).await.unwrap_err();
    assert_eq!(moved.kind(), ErrorKind::StoreUnavailable, "{moved}");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);

    let add = |key: &str| {
        let key = key.to_owned();
        [StagedWrite::from(RedisWrite::Add { key, by: 1, floor: None })]
    };
    let error = store.commit(&done(&held), &add("stock:cup")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    assert!(error.to_string().contains("{onlyonce}"), "{error}");
    let policy = (&RetryPolicy::fixed(SECOND, 5), Retention::default());
    let (failed, _) = fail(&held, &Failure::Terminal, "no".to_owned(), policy, NOW, 0.0);
    assert_eq!(store.commit(&failed, &add("stock:{onlyonce}:cup")).await.unwrap(), Commit::Applied);
    assert_eq!(store.scan(Status::Failed, None, 9).await.unwrap().records.len(), 1);
}

/// What the docs say of it, seen: a replica that takes over does not know what it was not told.
#[tokio::test]
async fn a_failover_forgets_what_was_not_replicated_and_no_more() {
    let [port] = free_ports();
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let (primary, replica) = (RedisServer::start_at(port, &at_once), RedisServer::start());
    let _: String = ask(&replica, &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    until("replicating", || {
        ask::<String>(&replica, &["INFO", "replication"]).contains("master_link_status:up")
    });
    let store = primary.store();
    let kept = claimed(&store).await;
    let told = |held: &Held| ask::<i64>(&replica, &["EXISTS", &key_of(held)]) == 1;
    until("replicated", || told(&kept));

    // It takes over while the old primary still answers, and that is what the worker is asking.
    let _: String = ask(&replica, &["REPLICAOF", "NO", "ONE"]);
    let (write, lost) = first_claim("k2", "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    drop(primary);

    let store = replica.store();
    assert_eq!(store.commit(&done(&kept), &[]).await.unwrap(), Commit::Applied);
    // Its owner cannot complete what is not there; another may claim it. So its effect runs again.
    assert_eq!(store.commit(&done(&lost), &[]).await.unwrap(), Commit::Conflict(None));
    let (second, _) = first_claim("k2", "second");
    assert_eq!(store.commit(&second, &[]).await.unwrap(), Commit::Applied);
}
