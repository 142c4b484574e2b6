//! The same random histories on every store: the same outcomes, step by step, as in memory.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use onlyonce::protocol::{
    Change, ClaimId, ConditionalWrite, EffectRecord, EffectState, EpochSeconds, Expect,
    FencingToken, Field, Fingerprint, IdempotencyKey, Output, Quarantine, Record, RecordId, Rev,
    Status,
};
use onlyonce::store::{Columns, Commit, MemoryStore, RowValue, RowWrite, StagedWrite, Store};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseError, TestRunner};

use crate::dynoxide::Dynoxide;
use crate::postgres_server::Emptied;
use crate::records::{NOW, SECOND};
use crate::redis_server::RedisServer;
use crate::wire::Wire;
use crate::{dynamo, sqlite_file};

/// Unless `PROPTEST_CASES` says how many.
const HISTORIES: u32 = 64;
const STATUSES: [Status; 5] =
    [Status::Claimed, Status::Released, Status::Completed, Status::Failed, Status::Unknown];

#[derive(Clone, Debug)]
enum Step {
    /// Makes the record of this key, if it is not there.
    Create { key: u8, fields: Vec<Field>, rows: Vec<Row> },
    /// Sets fields of it, if it is where `seen` says.
    Update { key: u8, seen: Seen, fields: Vec<Field>, rows: Vec<Row> },
    /// Sends the last write once more, as one whose answer was lost is.
    Again,
    /// Looks through the parked records, so many at a time.
    Scan { status: Status, limit: usize },
}

/// What an update takes the record to be.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// What it is.
    Now,
    /// What it was one revision ago.
    Before,
    /// What it will be.
    Ahead,
    /// Another claim's.
    Foreign,
}

#[derive(Clone, Debug)]
enum Row {
    Put {
        sku: u8,
        values: Columns,
    },
    Add {
        sku: u8,
        add: BTreeMap<String, i64>,
        floor: BTreeMap<String, i64>,
    },
    /// If it shows these, or what it has if none are given.
    Delete {
        sku: u8,
        values: Option<Columns>,
    },
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(|chars| chars.into_iter().collect())
}

fn field() -> impl Strategy<Value = Field> {
    let instant = || (0..1_000_000u32).prop_map(|ms| NOW + SECOND / 1000 * ms);
    let effect = (
        select(vec![
            EffectState::Intent,
            EffectState::Sent,
            EffectState::Unsent,
            EffectState::Done,
            EffectState::Rejected,
        ]),
        any::<u32>(),
        instant(),
        any::<Option<u8>>(),
        proptest::option::of(text()),
    )
        .prop_map(|(state, generation, first_sent, request, result)| EffectRecord {
            state,
            generation: generation.into(),
            first_sent,
            request: request.map(|byte| Fingerprint::of(&[byte])),
            result,
        });
    let output = prop_oneof![
        Just(None),
        Just(Some(Output::Omitted)),
        text().prop_map(|text| Some(Output::Stored(text)))
    ];
    prop_oneof![
        4 => select(STATUSES.to_vec()).prop_map(Field::Status),
        2 => (0..4u8).prop_map(|n| Field::ClaimId(ClaimId::new(format!("claim-{n}")))),
        // As far as every store counts.
        1 => (0..=u64::MAX / 2).prop_map(|n| Field::Token(FencingToken(n))),
        1 => any::<u32>().prop_map(Field::Attempt),
        1 => instant().prop_map(Field::LeaseUntil),
        1 => proptest::option::of(instant()).prop_map(Field::NotBefore),
        1 => any::<Option<u8>>()
            .prop_map(|byte| Field::Fingerprint(byte.map(|byte| Fingerprint::of(&[byte])))),
        1 => proptest::option::of(instant()).prop_map(Field::UnrecordedSince),
        2 => btree_map(text().prop_map(|name| format!("e{name}")), effect, 0..3)
            .prop_map(Field::Effects),
        2 => output.prop_map(Field::Output),
        1 => proptest::option::of(text()).prop_map(Field::Error),
        1 => select(vec![None, Some(Quarantine::Pending), Some(Quarantine::Sent)])
            .prop_map(Field::Quarantine),
        1 => instant().prop_map(Field::CreatedAt),
        3 => instant().prop_map(Field::UpdatedAt),
        1 => proptest::option::of(text()).prop_map(Field::MessageId),
        // All to come: Redis drops a record whose time is over.
        1 => proptest::option::of(4_000_000_000..8_000_000_000u64)
            .prop_map(|secs| Field::ExpiresAt(secs.map(EpochSeconds::from_secs))),
    ]
}

/// Each field once.
fn fields() -> impl Strategy<Value = Vec<Field>> {
    vec(field(), 0..8).prop_map(|fields| {
        let mut once: Vec<Field> = Vec::new();
        for field in fields {
            once.retain(|other| discriminant(other) != discriminant(&field));
            once.push(field);
        }
        once
    })
}

/// Each row once: DynamoDB takes no two writes of one in a transaction.
fn rows() -> impl Strategy<Value = Vec<Row>> {
    let value = prop_oneof![
        // Postgres refuses U+0000 in rows of one's own when it is staged.
        (Just("name"), text().prop_map(|text| RowValue::Text(text.replace('\0', "")))),
        (Just("size"), any::<i64>().prop_map(RowValue::Integer)),
        (Just("sold"), any::<bool>().prop_map(RowValue::Bool)),
        (Just("available"), (-3..9i64).prop_map(RowValue::Integer)),
    ];
    let named = |(name, value): (&str, RowValue)| (name.to_owned(), value);
    let columns =
        vec(value.prop_map(named), 0..4).prop_map(|all| all.into_iter().collect::<Columns>());
    let counts = |range: std::ops::Range<i64>, least| {
        btree_map(select(vec!["available".to_owned(), "reserved".to_owned()]), range, least..3)
    };
    let row = prop_oneof![
        (0..3u8, columns.clone()).prop_map(|(sku, values)| Row::Put { sku, values }),
        (0..3u8, counts(-4..5, 1), counts(-2..3, 0)).prop_map(|(sku, add, floor)| Row::Add {
            sku,
            add,
            floor
        }),
        (0..3u8, proptest::option::of(columns))
            .prop_map(|(sku, values)| Row::Delete { sku, values }),
    ];
    vec(row, 0..4).prop_map(|rows| {
        let sku = |row: &Row| match row {
            Row::Put { sku, .. } | Row::Add { sku, .. } | Row::Delete { sku, .. } => *sku,
        };
        let once: BTreeMap<_, _> = rows.into_iter().map(|row| (sku(&row), row)).collect();
        once.into_values().collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let seen = prop_oneof![
        6 => Just(Seen::Now),
        1 => Just(Seen::Before),
        1 => Just(Seen::Ahead),
        1 => Just(Seen::Foreign),
    ];
    prop_oneof![
        3 => (0..2u8, fields(), rows())
            .prop_map(|(key, fields, rows)| Step::Create { key, fields, rows }),
        8 => (0..2u8, seen, fields(), rows())
            .prop_map(|(key, seen, fields, rows)| Step::Update { key, seen, fields, rows }),
        2 => Just(Step::Again),
        1 => (select(STATUSES.to_vec()), 1..4usize)
            .prop_map(|(status, limit)| Step::Scan { status, limit }),
    ]
}

fn id(key: u8) -> RecordId {
    RecordId::new("default", "job", &IdempotencyKey::new(format!("key {key}")).unwrap())
}

fn blank(key: u8) -> Record {
    Record {
        id: id(key),
        key: format!("key {key}"),
        job: "job".to_owned(),
        namespace: "default".to_owned(),
        status: Status::Claimed,
        claim_id: ClaimId::new("claim-0"),
        token: FencingToken(1),
        rev: Rev(0),
        attempt: 1,
        lease_until: NOW,
        not_before: None,
        fingerprint: None,
        unrecorded_since: None,
        effects: BTreeMap::new(),
        output: None,
        error: None,
        quarantine: None,
        created_at: NOW,
        updated_at: NOW,
        message_id: None,
        expires_at: None,
    }
}

/// The stores of one history, memory first.
struct Stores {
    memory: Arc<MemoryStore>,
    others: Vec<(&'static str, Arc<dyn Store>)>,
    /// Of its rows: the table `stock` is everybody's.
    prefix: String,
    seen: Arc<Outcomes>,
}

/// How often each outcome was the one that all agreed on.
#[derive(Debug, Default)]
struct Outcomes {
    applied: AtomicUsize,
    conflicts: AtomicUsize,
    nothing_there: AtomicUsize,
    refused: AtomicUsize,
}

impl Outcomes {
    fn count(&self, commit: &Commit) {
        let counter = match commit {
            Commit::Applied => &self.applied,
            Commit::Conflict(Some(_)) => &self.conflicts,
            Commit::Conflict(None) => &self.nothing_there,
            Commit::Refused { .. } => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn each_at_least(&self, least: usize) -> bool {
        let counts = [&self.applied, &self.conflicts, &self.nothing_there, &self.refused];
        counts.iter().all(|count| count.load(Ordering::Relaxed) >= least)
    }
}

impl Stores {
    fn at(&self, sku: u8) -> Columns {
        Columns::from([("sku".to_owned(), RowValue::from(format!("{} {sku}", self.prefix)))])
    }

    fn row(&self, sku: u8) -> Option<Columns> {
        self.memory.row("stock", &self.at(sku))
    }

    /// The rows with what memory shows of those that are deleted as they are.
    fn as_seen(&self, rows: &[Row]) -> Vec<Row> {
        let seen = |row: &Row| match row {
            Row::Delete { sku, values: None } => {
                Row::Delete { sku: *sku, values: Some(self.row(*sku).unwrap_or_default()) }
            }
            row => row.clone(),
        };
        rows.iter().map(seen).collect()
    }

    fn staged(&self, row: &Row) -> StagedWrite {
        let table = "stock".to_owned();
        let write = match row.clone() {
            Row::Put { sku, values } => RowWrite::PutIfAbsent { table, key: self.at(sku), values },
            Row::Add { sku, add, floor } => RowWrite::Add { table, key: self.at(sku), add, floor },
            Row::Delete { sku, values } => {
                RowWrite::DeleteIf { table, key: self.at(sku), values: values.unwrap_or_default() }
            }
        };
        write.into()
    }

    /// The write that `step` asks for, as things are in memory.
    async fn write(&self, step: &Step) -> Option<(ConditionalWrite, Vec<Row>)> {
        Some(match step {
            Step::Create { key, fields, rows } => {
                let mut record = blank(*key);
                fields.iter().for_each(|field| field.apply(&mut record));
                let change = Change::Create(Box::new(record));
                (
                    ConditionalWrite { id: id(*key), expect: Expect::Absent, change },
                    self.as_seen(rows),
                )
            }
            Step::Update { key, seen, fields, rows } => {
                let record = self.memory.load(&id(*key)).await.unwrap();
                let Record { claim_id, rev, .. } = record.unwrap_or_else(|| blank(*key));
                let mut fields = fields.clone();
                fields.push(Field::Rev(rev.next()));
                let (claim_id, rev) = match seen {
                    Seen::Now => (claim_id, rev),
                    Seen::Before => (claim_id, Rev(rev.0.saturating_sub(1))),
                    Seen::Ahead => (claim_id, rev.next()),
                    Seen::Foreign => (ClaimId::new("foreign"), rev),
                };
                let expect = Expect::At { claim_id, rev };
                let change = Change::Update(fields);
                (ConditionalWrite { id: id(*key), expect, change }, self.as_seen(rows))
            }
            Step::Again | Step::Scan { .. } => return None,
        })
    }

    /// Commits everywhere; as in memory, or the name of the store that does otherwise.
    async fn commit(
        &self,
        write: &ConditionalWrite,
        rows: &[Row],
    ) -> Result<Commit, TestCaseError> {
        let staged = || rows.iter().map(|row| self.staged(row)).collect::<Vec<_>>();
        let expected = self.memory.commit(write, &staged()).await.unwrap();
        let here = self.memory.load(&write.id).await.unwrap();
        let there = self.others.iter().map(async |(name, store)| {
            let commit = store.commit(write, &staged()).await;
            let commit = commit.map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
            prop_assert_eq!(&commit, &expected, "{}: {:?} {:?}", name, write, rows);
            let there = store.load(&write.id).await.unwrap();
            prop_assert_eq!(&there, &here, "{}: {:?}", name, write);
            Ok(())
        });
        join_all(there).await.into_iter().collect::<Result<(), _>>()?;
        self.seen.count(&expected);
        Ok(expected)
    }

    async fn scan(&self, status: Status, limit: usize) -> Result<(), TestCaseError> {
        let expected = scanned(self.memory.as_ref(), status, limit).await?;
        for (name, store) in &self.others {
            let found = scanned(store.as_ref(), status, limit).await?;
            prop_assert_eq!(&found, &expected, "{}: {} by {}", name, status, limit);
        }
        Ok(())
    }

    /// Every row as memory has it: it can be deleted as that, or put as new.
    async fn rows_are_the_same(&self) -> Result<(), TestCaseError> {
        if self.others.iter().any(|(_, store)| !store.capabilities().rows) {
            return Ok(());
        }
        for sku in 0..3 {
            let row = match self.row(sku) {
                Some(_) => Row::Delete { sku, values: None },
                None => Row::Put { sku, values: Columns::new() },
            };
            let write = ConditionalWrite {
                id: id(100 + sku),
                expect: Expect::Absent,
                change: Change::Create(Box::new(blank(100 + sku))),
            };
            prop_assert_eq!(self.commit(&write, &self.as_seen(&[row])).await?, Commit::Applied);
        }
        Ok(())
    }
}

/// All pages. In order of time; of one instant in any order, so that is made the same.
async fn scanned(
    store: &dyn Store,
    status: Status,
    limit: usize,
) -> Result<Vec<Record>, TestCaseError> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(status, after, limit).await.unwrap();
        prop_assert!(page.records.len() <= limit);
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    prop_assert!(records.is_sorted_by_key(|record: &Record| record.updated_at));
    records.sort_by_key(|record| (record.updated_at, record.id.clone()));
    Ok(records)
}

async fn compare(stores: &Stores, history: &[Step]) -> Result<(), TestCaseError> {
    let mut last: Option<(ConditionalWrite, Vec<Row>)> = None;
    for step in history {
        match step {
            Step::Scan { status, limit } => stores.scan(*status, *limit).await?,
            Step::Again => {
                if let Some((write, rows)) = &last {
                    stores.commit(write, rows).await?;
                }
            }
            Step::Create { .. } | Step::Update { .. } => {
                last = stores.write(step).await;
                if let Some((write, rows)) = &last {
                    stores.commit(write, rows).await?;
                }
            }
        }
    }
    for status in STATUSES {
        stores.scan(status, 2).await?;
    }
    stores.rows_are_the_same().await
}

/// The same history for stores that have no rows.
fn without_rows(history: &[Step]) -> Vec<Step> {
    let mut history = history.to_vec();
    for step in &mut history {
        if let Step::Create { rows, .. } | Step::Update { rows, .. } = step {
            rows.clear();
        }
    }
    history
}

/// A failing history is shown shrunk, and its seed is kept beside this file.
#[test]
fn every_store_answers_a_history_as_memory_does() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (dynoxide, redis) = (Dynoxide::start(), RedisServer::start());
    let postgres = runtime.block_on(Emptied::start());
    let (one, other) =
        runtime.block_on(async { (dynamo::client().await, dynoxide.client().await) });
    let seen = Arc::new(Outcomes::default());
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let histories = asked.unwrap_or(HISTORIES);
    let config = ProptestConfig {
        cases: histories,
        max_shrink_iters: 400,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let ran = TestRunner::new(config).run(&vec(step(), 1..40), |history| {
        runtime.block_on(async {
            let others: Vec<(_, Arc<dyn Store>)> = vec![
                ("sqlite", sqlite_file::store().await),
                ("MiniStack", Arc::new(dynamo::store_of(&one).await)),
                ("dynoxide", Arc::new(dynamo::store_of(&other).await)),
                ("postgres", postgres.store().await),
            ];
            let prefix = format!("{:016x}", fastrand::Rng::new().u64(..));
            let against = |others, prefix| Stores {
                memory: Arc::new(MemoryStore::new()),
                others,
                prefix,
                seen: seen.clone(),
            };
            compare(&against(others, prefix), &history).await?;
            redis.flush();
            let plain: Vec<(_, Arc<dyn Store>)> = vec![("redis", Arc::new(redis.store()))];
            compare(&against(plain, String::new()), &without_rows(&history)).await
        })
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
    println!("{histories} histories, commits by outcome: {seen:?}");
    assert!(seen.each_at_least(20), "the histories show too little: {seen:?}");
}

/// How many records are written at the same moment, and how often.
const AT_ONCE: u8 = 12;

/// Writes of different records.
fn together() -> impl Strategy<Value = Vec<Step>> {
    let seen = prop_oneof![
        4 => Just(Seen::Now),
        1 => Just(Seen::Before),
        1 => Just(Seen::Ahead),
        1 => Just(Seen::Foreign),
    ];
    let of_one =
        (any::<u8>(), seen, fields()).prop_map(|(kind, seen, fields)| (kind % 5, seen, fields));
    vec(of_one, usize::from(AT_ONCE)).prop_map(|all| {
        let step = |(key, (kind, seen, fields)): (u8, (u8, Seen, Vec<Field>))| match kind {
            0 => None,
            1 | 2 => Some(Step::Create { key, fields, rows: Vec::new() }),
            _ => Some(Step::Update { key, seen, fields, rows: Vec::new() }),
        };
        (0..AT_ONCE).zip(all).filter_map(step).collect()
    })
}

impl Stores {
    /// Commits all at the same moment, everywhere but in memory; each has its own outcome.
    async fn commit_together(&self, steps: &[Step]) -> Result<(), TestCaseError> {
        let mut writes = Vec::new();
        for step in steps {
            writes.extend(self.write(step).await.map(|(write, _)| write));
        }
        let mut expected = Vec::new();
        for write in &writes {
            let commit = self.memory.commit(write, &[]).await.unwrap();
            self.seen.count(&commit);
            expected.push((commit, self.memory.load(&write.id).await.unwrap()));
        }
        for (name, store) in &self.others {
            let all = join_all(writes.iter().map(|write| store.commit(write, &[]))).await;
            for ((write, commit), (expected, here)) in writes.iter().zip(all).zip(&expected) {
                let commit =
                    commit.map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
                prop_assert_eq!(&commit, expected, "{}: {:?} of {:?}", name, write, writes);
                let there = store.load(&write.id).await.unwrap();
                prop_assert_eq!(&there, here, "{}: {:?}", name, write);
            }
        }
        Ok(())
    }
}

/// As above, for commits that share requests.
#[test]
fn writes_made_together_have_each_the_outcome_it_has_in_memory() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let dynoxide = Dynoxide::start();
    let url = std::env::var("AWS_ENDPOINT_URL").unwrap();
    let upstream = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let (wires, clients) = runtime.block_on(async {
        let wires = [Wire::to(upstream).await, Wire::to(dynoxide.address()).await];
        let clients = [dynamo::client().await, dynoxide.client().await];
        (wires, clients)
    });
    let seen = Arc::new(Outcomes::default());
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: asked.unwrap_or(HISTORIES / 4),
        max_shrink_iters: 200,
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
        )),
        source_file: Some(file!()),
        ..ProptestConfig::default()
    };
    let ran = TestRunner::new(config).run(&vec(together(), 1..6), |history| {
        runtime.block_on(async {
            let store = async |at: usize| {
                let store = dynamo::store_of(&wires[at].through(&clients[at])).await;
                Arc::new(store) as Arc<dyn Store>
            };
            let stores = Stores {
                memory: Arc::new(MemoryStore::new()),
                others: vec![("MiniStack", store(0).await), ("dynoxide", store(1).await)],
                prefix: String::new(),
                seen: seen.clone(),
            };
            for steps in &history {
                stores.commit_together(steps).await?;
            }
            Ok(())
        })
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
    for wire in &wires {
        let asked = wire.asked();
        let members =
            |of: &str| asked.iter().filter(|(name, _)| name == of).map(|(_, n)| n).sum::<usize>();
        let (shared, read) = (members("BatchExecuteStatement"), members("BatchGetItem"));
        println!("{shared} writes in shared requests, {read} read together");
        assert!(shared > 100 && read > 10, "hardly any request was shared: {shared}, {read}");
    }
    let counts = [&seen.applied, &seen.conflicts, &seen.nothing_there];
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) >= 20), "{seen:?}");
}
