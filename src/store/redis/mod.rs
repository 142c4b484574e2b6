//! Records in Redis or Valkey: one script a step.

mod answer;
mod fault;
mod hash;
mod keeping;
mod link;
mod staged;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ::redis::{Client, Script, ScriptInvocation, cmd};
use async_trait::async_trait;

use self::link::Link;
use self::staged::Step;
use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Change, ConditionalWrite, Expect, Record, RecordId, SCHEMA_VERSION, Status};

pub use keeping::RedisKeeping;
pub use staged::RedisWrite;

/// Records in Redis (6.2 or later) or Valkey.
///
/// **While one server keeps its memory**, the guarantee is that of every store: a commit is one
/// script, which compares and sets the record with every staged [`RedisWrite`], or does nothing.
///
/// **What it may lose**, and other stores do not:
///
/// - *A failover.* Replication is asynchronous: a claim or a completion that was answered may be
///   missing on the replica that takes over. Another worker then claims, and an effect runs again:
///   under the same key, if it is keyed. `min-replicas-to-write` and `WAIT` make that rarer, and not
///   impossible; this store does not `WAIT`.
/// - *A restart.* What was not yet on the disk is gone: all of it without `appendonly yes`, up to a
///   second of it with `appendfsync everysec`, none with `appendfsync always`.
/// - *An eviction.* With any `maxmemory-policy` but `noeviction`, a full server drops records, and with
///   them the knowledge that an effect has happened. With `noeviction` it answers `OOM`, and the
///   message comes again.
///
/// So use it where a rare second time does no harm: mails, notifications, cache fills; and keyed
/// effects. Not for money by itself, and not for effects that must run at most once.
/// Look at `maxmemory-policy`, `appendonly` and the replicas before you do; `onlyonce setup` warns of
/// a policy that evicts.
///
/// A record is a hash, `{onlyonce}:record:ID`, whose fields have the names that they have in every
/// store; `HGETALL` shows it. Its TTL follows `expires_at`, and is never before ten minutes after its
/// lease. What is kept for ever, unknown, or has an open intent has none. The parked records of each
/// status are listed in a sorted set, `{onlyonce}:parked:STATUS`.
///
/// All of these keys share one hash slot, as a script on Redis Cluster must: so all records live on
/// one shard, whose memory and one core are the limit, and a cluster gives this store no more room than
/// a single server. A record is about 1 KB; a million of them, kept for 45 days, are 22,000 jobs a
/// day. On a cluster any node will do: the first that is asked says which one has the slot.
///
/// `redis://`, `rediss://` (TLS), `redis+unix://` and `unix://`, with user, password and database as
/// usual: `rediss://user:password@host:6379/0`, `unix:///run/redis.sock?db=1&pass=...`. Connecting
/// and each answer have two seconds; a connection that broke, or said nothing for that long, is made
/// anew.
#[derive(Clone)]
pub struct RedisStore {
    link: Link,
}

/// In braces: the part that decides the hash slot.
pub(super) const PREFIX: &str = "{onlyonce}:";
/// 2^53 - 1: how far a script counts exactly.
const LARGEST: u64 = (1 << 53) - 1;
/// How much longer than its lease a record is there at least: for the skew, and for clocks of Redis'
/// own.
const OUTLIVES: Duration = Duration::from_secs(600);
/// A script holds up everybody else: it shows so many records at once, at most.
const MAX_PAGE: usize = 500;

const COMMIT_TEXT: &str = include_str!("commit.lua");
const SCAN_TEXT: &str = include_str!("scan.lua");
const WALK_TEXT: &str = include_str!("walk.lua");
static COMMIT: LazyLock<Script> = LazyLock::new(|| Script::new(COMMIT_TEXT));
static SCAN: LazyLock<Script> = LazyLock::new(|| Script::new(SCAN_TEXT));
static WALK: LazyLock<Script> = LazyLock::new(|| Script::new(WALK_TEXT));

const PARKED: [Status; 3] = [Status::Released, Status::Failed, Status::Unknown];

fn record_key(id: &RecordId) -> String {
    format!("{PREFIX}record:{id}")
}

fn index_key(status: Status) -> String {
    format!("{PREFIX}parked:{status}")
}

impl RedisStore {
    /// The records in the Redis at `url`. Connects when it is first needed.
    pub fn open(url: &str) -> Result<Self, Error> {
        if url.starts_with("rediss:") || url.starts_with("valkeys:") {
            // Fails only if there is one already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        // What is wrong with it is not said in its own words: they would show a password.
        let client = Client::open(url).map_err(|_| {
            Error::new(ErrorKind::Config, "open the store").with_detail(
                "this is no URL of Redis; its form is redis://user:password@host:6379/0, rediss:// \
                 for TLS, or unix:///path",
            )
        })?;
        Ok(Self { link: Link::new(client) })
    }

    /// Sees that the server answers, takes the scripts, and keeps what it is given. What may lose
    /// records is answered, a line each.
    pub async fn check(&self) -> Result<Vec<String>, Error> {
        for text in [COMMIT_TEXT, SCAN_TEXT, WALK_TEXT] {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            self.link.send("check", &load).await?;
        }
        let policy = self.keeping().await?.policy;
        Ok(match policy.as_deref() {
            Some("noeviction") => Vec::new(),
            Some(policy) => vec![format!(
                "maxmemory-policy is {policy}: a full server forgets what is done, and it is done \
                 again; set it to noeviction"
            )],
            None => vec![
                "maxmemory-policy cannot be seen; make sure that it is noeviction, or a full \
                 server forgets what is done"
                    .to_owned(),
            ],
        })
    }

    /// How well the server keeps what it is given, as far as this user may see it.
    pub async fn keeping(&self) -> Result<RedisKeeping, Error> {
        match self.link.send("check", &cmd("INFO")).await {
            Ok(info) => Ok(RedisKeeping::read(&info)),
            Err(error) if error.kind() == ErrorKind::StoreRefused => Ok(RedisKeeping::default()),
            Err(error) => Err(error),
        }
    }
}

/// The script with all that it reads, in the order in which it does.
fn invocation(write: &ConditionalWrite, steps: &[Step]) -> ScriptInvocation<'static> {
    let mut call = COMMIT.key(record_key(&write.id));
    for status in PARKED {
        call.key(index_key(status));
    }
    for step in steps {
        call.key(&step.key);
    }

    let (claim_id, rev) = match &write.expect {
        Expect::Absent => ("", String::new()),
        Expect::At { claim_id, rev } => (claim_id.as_str(), rev.0.to_string()),
    };
    let (fields, expect) = match (&write.change, &write.expect) {
        (Change::Create(record), Expect::Absent) => (hash::encode(record), "absent"),
        (Change::Create(record), Expect::At { .. }) => (hash::encode(record), "at"),
        (Change::Update(fields), Expect::At { .. }) => {
            (fields.iter().flat_map(hash::fields).collect(), "at")
        }
        // There is nothing to update where there is no record.
        (Change::Update(_), Expect::Absent) => (Vec::new(), "never"),
    };
    call.arg(expect).arg(claim_id).arg(rev).arg(SCHEMA_VERSION);
    call.arg(write.id.as_str()).arg(format!("{PREFIX}record:"));
    call.arg(PARKED.len()).arg(PARKED.map(Status::as_str).as_slice());
    call.arg(OUTLIVES.as_millis().to_string());
    let (set, remove): (Vec<_>, Vec<_>) = fields.iter().partition(|(_, value)| value.is_some());
    call.arg(set.len() * 2);
    for (name, value) in &set {
        call.arg(*name).arg(value.as_deref().unwrap_or_default());
    }
    call.arg(remove.len());
    for (name, _) in remove {
        call.arg(*name);
    }
    for step in steps {
        call.arg(step.form).arg(step.args.len());
        for arg in &step.args {
            call.arg(arg);
        }
    }
    call
}

#[async_trait]
impl Store for RedisStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        let sent = self.link.send("load", cmd("HGETALL").arg(record_key(id))).await;
        answer::record(id, sent.map_err(|error| error.with_id(id))?)
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let with_id = |error: Error| error.with_id(&write.id);
        let steps: Result<Vec<_>, _> = staged.iter().map(Step::of).collect();
        let call = invocation(write, &steps.map_err(with_id)?);
        answer::commit(&write.id, self.link.run("commit", &call).await.map_err(with_id)?)
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        if !parked.is_parked() || limit == 0 {
            return Ok(Page::default());
        }
        let mut call = SCAN.key(index_key(parked));
        call.arg(parked.as_str()).arg(format!("{PREFIX}record:")).arg(limit.min(MAX_PAGE));
        if let Some(cursor) = after {
            call.arg(cursor.updated_at.millis()).arg(cursor.id.as_str());
        }
        answer::page(self.link.run("scan", &call).await?)
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        // The key says which shard of a cluster is meant.
        let mut call = WALK.key(index_key(Status::Failed));
        call.arg(format!("{PREFIX}record:")).arg(after.as_deref().unwrap_or("0"));
        call.arg(limit.clamp(1, MAX_PAGE));
        answer::walk(self.link.run("walk", &call).await?)
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        Step::of(staged).map(drop)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { rows: false, native: &[staged::NATIVE], outbox: None }
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        None
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.link.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_shown_nowhere() {
        let store = RedisStore::open("redis://ada:s3cret@127.0.0.1:1/3").unwrap();
        assert_eq!(format!("{store:?}"), "RedisStore(127.0.0.1:1)");
        let error = store.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable);
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        for url in ["redis://ada:s3cret@", "redis://ada:s3cret@host:x/", "http://ada:s3cret@host"] {
            let error = RedisStore::open(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
