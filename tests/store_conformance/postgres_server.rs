//! The Postgres store on a server of its own, and what only it can do.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{
    Change, ConditionalWrite, Expect, Field, Held, Output, Record, Retention, Status, complete,
};
use onlyonce::runtime::{Task, spawn};
use onlyonce::store::postgres::InTransaction;
use onlyonce::store::sql::Abort;
use onlyonce::store::{
    Columns, Commit, PostgresStore, RowValue, RowWrite, SqlStatement, StagedWrite, Store,
};

use crate::kept::Kept;
use crate::outage::Server;
use crate::outages::all_is_done_once;
use crate::records::{NOW, SECOND, first_claim};
use crate::server::Postgres;

const STOCK: &str = "CREATE TABLE stock (sku TEXT PRIMARY KEY, available BIGINT, \
    name TEXT, size BIGINT, sold BOOLEAN, reserved BIGINT)";

async fn store_on(server: &Postgres) -> PostgresStore {
    PostgresStore::create(&server.url()).await.unwrap();
    PostgresStore::open_existing(&server.url()).await.unwrap()
}

/// A server, and its store with one connection, so that a second call finds what the first left.
async fn lone() -> (Postgres, PostgresStore) {
    let server = Postgres::start();
    PostgresStore::create(&server.url()).await.unwrap();
    let url = format!("{}&pool_size=1", server.url());
    let store = PostgresStore::open_existing(&url).await.unwrap();
    (server, store)
}

/// The store's one connection: that of who made the tables may not have ended yet.
const CONNECTION: &str = "SELECT pid::bigint FROM pg_stat_activity \
    WHERE application_name = 'onlyonce' ORDER BY backend_start DESC LIMIT 1";

/// A store on a server of its own; rows go to the table `stock`.
pub async fn store() -> Arc<dyn Store> {
    let server = Postgres::start();
    let store = store_on(&server).await;
    server.foreign().await.batch_execute(STOCK).await.unwrap();
    Arc::new(Kept { store: Arc::new(store), _keeps: server })
}

/// A server whose store is begun anew.
#[cfg(all(feature = "dynamodb", feature = "sqlite"))]
pub struct Emptied {
    store: PostgresStore,
    server: Postgres,
}

#[cfg(all(feature = "dynamodb", feature = "sqlite"))]
impl Emptied {
    pub async fn start() -> Self {
        let server = Postgres::start();
        let store = store_on(&server).await;
        server.foreign().await.batch_execute(STOCK).await.unwrap();
        Self { store, server }
    }

    /// The store without records.
    pub async fn store(&self) -> Arc<dyn Store> {
        self.server.foreign().await.batch_execute("TRUNCATE onlyonce").await.unwrap();
        Arc::new(self.store.clone())
    }
}

/// A server on a disk that is synced, whose plug is pulled.
pub struct Pulled {
    store: PostgresStore,
    server: Postgres,
}

impl Pulled {
    pub async fn start() -> Self {
        let server = Postgres::durable();
        let store = store_on(&server).await;
        Self { store, server }
    }
}

impl Server for Pulled {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn restart(&mut self) {
        self.server.start_again();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_run_in_which_postgres_is_killed_again_and_again_every_job_is_done_once() {
    let mut pulled = Pulled::start().await;
    // Nothing in the table says that a line is there once.
    let tables = "CREATE TABLE ledger (key TEXT NOT NULL);
        CREATE TABLE totals (name TEXT PRIMARY KEY, done BIGINT NOT NULL)";
    pulled.server.foreign().await.batch_execute(tables).await.unwrap();
    let mut done = all_is_done_once(&mut pulled, |key| {
        let line = SqlStatement {
            sql: "INSERT INTO ledger (key) VALUES ($1)".to_owned(),
            params: vec![key.into()],
            expect_changes: Some(1),
        };
        let total = RowWrite::Add {
            table: "totals".to_owned(),
            key: Columns::from([("name".to_owned(), "all".into())]),
            add: [("done".to_owned(), 1)].into(),
            floor: [].into(),
        };
        vec![line.into(), total.into()]
    })
    .await;

    let foreign = pulled.server.foreign().await;
    let lines = foreign.query("SELECT key FROM ledger ORDER BY key", &[]).await.unwrap();
    let lines: Vec<String> = lines.iter().map(|row| row.get(0)).collect();
    done.sort();
    assert_eq!(lines, done);
    let total = "SELECT done FROM totals WHERE name = 'all'";
    assert_eq!(foreign.number(total).await, Some(lines.len() as i64));
}

async fn claimed(store: &PostgresStore, key: &str) -> Held {
    let (write, held) = first_claim(key, "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    held
}

fn done(held: &Held) -> ConditionalWrite {
    complete(held, Output::Omitted, Retention::Forever, NOW).0
}

async fn status(store: &PostgresStore, held: &Held) -> Status {
    store.load(&held.id).await.unwrap().unwrap().status
}

fn sql(text: &str) -> StagedWrite {
    SqlStatement { sql: text.to_owned(), params: Vec::new(), expect_changes: None }.into()
}

fn add(sku: &str, by: i64) -> StagedWrite {
    RowWrite::Add {
        table: "stock".to_owned(),
        key: Columns::from([("sku".to_owned(), RowValue::from(sku))]),
        add: [("available".to_owned(), by)].into(),
        floor: [("available".to_owned(), 0)].into(),
    }
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_claimers_on_stores_of_their_own_one_wins() {
    let server = Postgres::start();
    PostgresStore::create(&server.url()).await.unwrap();
    // As workers are: each with its own connections.
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(PostgresStore::open_existing(&server.url()).await.unwrap());
    }
    for round in 0..20 {
        let racing: Vec<Task<_>> = (0..50)
            .map(|n| {
                let store = stores[n % stores.len()].clone();
                let (write, _) = first_claim(&format!("k{round}"), &format!("claim-{n}"));
                spawn(async move { store.commit(&write, &[]).await.unwrap() })
            })
            .collect();
        let (mut landed, mut seen) = (0, 0);
        for mut task in racing {
            match task.join().await.unwrap() {
                Commit::Applied => landed += 1,
                // Nobody is told that there is nothing: that would be to decide again for naught.
                Commit::Conflict(Some(_)) => seen += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((landed, seen), (1, 49), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waited_for_another_sees_what_that_has_done() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let held = claimed(&store, "k").await;
    let before = store.load(&held.id).await.unwrap().unwrap();
    // Another holds the row, and will have changed it.
    let foreign = server.foreign().await;
    foreign.batch_execute("BEGIN; UPDATE onlyonce SET rev = 2, error = 'seen'").await.unwrap();
    let waiting = {
        let (store, write) = (store.clone(), done(&held));
        spawn(async move { store.commit(&write, &[]).await.unwrap() })
    };
    is_blocked(&server).await;
    foreign.batch_execute("COMMIT").await.unwrap();
    let mut waiting = waiting;
    let after = Record { rev: before.rev.next(), error: Some("seen".to_owned()), ..before };
    assert_eq!(waiting.join().await.unwrap(), Commit::Conflict(Some(Box::new(after))));

    // The same for a record that is made at the same time.
    let (mine, _) = first_claim("new", "mine");
    let copy = "INSERT INTO onlyonce SELECT $1, 'new', job, namespace, v, status, parked, 'other', \
        token, rev, attempt, lease_until, not_before, fingerprint, unrecorded_since, effects, \
        output, output_omitted, error, quarantine, created_at, updated_at, message_id, expires_at \
        FROM onlyonce";
    foreign.batch_execute("BEGIN").await.unwrap();
    foreign.execute(copy, &[&mine.id.as_str()]).await.unwrap();
    let mut waiting = {
        let (store, write) = (store.clone(), mine.clone());
        spawn(async move { store.commit(&write, &[]).await.unwrap() })
    };
    is_blocked(&server).await;
    foreign.batch_execute("COMMIT").await.unwrap();
    match waiting.join().await.unwrap() {
        Commit::Conflict(Some(record)) => assert_eq!(record.claim_id.as_str(), "other"),
        other => panic!("{other:?}"),
    }
}

/// Returns once somebody waits for a lock.
async fn is_blocked(server: &Postgres) {
    let foreign = server.foreign().await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while foreign.number(waiting).await == Some(0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_hold_is_contended_within_bounds_and_has_not_landed() {
    let (server, store) = lone().await;
    server.foreign().await.batch_execute(STOCK).await.unwrap();
    let held = claimed(&store, "k").await;
    let foreign = server.foreign().await;
    let before = foreign.number(CONNECTION).await;
    foreign.batch_execute("BEGIN; LOCK TABLE stock").await.unwrap();
    let commit = async { store.commit(&done(&held), &[add("a", 1)]).await };
    let commit = tokio::time::timeout(SECOND * 10, commit);
    let error = commit.await.expect("bounded by the store's own patience").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreContended, "{error}");
    assert_eq!(status(&store, &held).await, Status::Claimed);
    foreign.batch_execute("COMMIT").await.unwrap();
    let commit = store.commit(&done(&held), &[add("a", 1)]).await;
    assert_eq!(commit.unwrap(), Commit::Applied);
    assert_eq!(foreign.number(CONNECTION).await, before, "by the connection that it had");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_wait_for_each_other_one_is_contended_and_lands_later() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    foreign.batch_execute(STOCK).await.unwrap();
    let rows = "INSERT INTO stock (sku, available) VALUES ('a', 0), ('b', 0)";
    foreign.batch_execute(rows).await.unwrap();
    // Many crossing pairs: some meet.
    let mut racing: Vec<Task<()>> = Vec::new();
    for n in 0..8 {
        let store = store.clone();
        racing.push(spawn(async move {
            let held = claimed(&store, &format!("k{n}")).await;
            let (first, second) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
            loop {
                match store.commit(&done(&held), &[add(first, 1), add(second, 1)]).await {
                    Ok(commit) => break assert_eq!(commit, Commit::Applied),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::StoreContended, "{error}"),
                }
            }
        }));
    }
    for mut task in racing {
        task.join().await.unwrap();
    }
    let sums = "SELECT sum(available)::bigint FROM stock WHERE available = 8";
    assert_eq!(foreign.number(sums).await, Some(16));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_make_one_row_at_the_same_time_all_add_and_one_puts() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    foreign.batch_execute(STOCK).await.unwrap();
    let mut landed = 0;
    let mut racing: Vec<Task<usize>> = Vec::new();
    for n in 0..24 {
        let store = store.clone();
        racing.push(spawn(async move {
            let held = claimed(&store, &format!("add {n}")).await;
            assert_eq!(store.commit(&done(&held), &[add("a", 2)]).await.unwrap(), Commit::Applied);
            let held = claimed(&store, &format!("put {n}")).await;
            let put = RowWrite::PutIfAbsent {
                table: "stock".to_owned(),
                key: Columns::from([("sku".to_owned(), "b".into())]),
                values: Columns::from([("size".to_owned(), n.into())]),
            };
            let commit = store.commit(&done(&held), &[put.into()]).await.unwrap();
            assert!(matches!(commit, Commit::Applied | Commit::Refused { index: 0 }));
            usize::from(commit == Commit::Applied)
        }));
    }
    for mut task in racing {
        landed += task.join().await.unwrap();
    }
    assert_eq!(landed, 1);
    let sum = "SELECT available FROM stock WHERE sku = 'a'";
    assert_eq!(foreign.number(sum).await, Some(48));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_called_off_in_the_middle_leaves_nothing_behind_on_its_connection() {
    let (server, store) = lone().await;
    let foreign = server.foreign().await;
    foreign.batch_execute(STOCK).await.unwrap();
    let held = claimed(&store, "k").await;
    foreign.batch_execute("BEGIN; LOCK TABLE stock").await.unwrap();
    let waiting = {
        let (store, write) = (store.clone(), done(&held));
        spawn(async move { store.commit(&write, &[add("a", 1)]).await })
    };
    is_blocked(&server).await;
    waiting.stop();
    drop(waiting);
    // The next call has a connection of its own, at once, in no transaction.
    let other = claimed(&store, "other").await;
    let seen = "SELECT count(*) FROM onlyonce WHERE key = 'other'";
    assert_eq!(foreign.number(seen).await, Some(1));
    foreign.batch_execute("COMMIT").await.unwrap();
    // What was called off is taken back, and holds nothing.
    let again = store.commit(&done(&held), &[add("a", 1)]).await;
    assert_eq!(again.unwrap(), Commit::Applied);
    assert_eq!(store.commit(&done(&other), &[]).await.unwrap(), Commit::Applied);
    assert_eq!(foreign.number("SELECT available FROM stock").await, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_refuses_at_the_end() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    let tables = "CREATE TABLE shelf (sku TEXT PRIMARY KEY);
        CREATE TABLE sale (sku TEXT REFERENCES shelf (sku) DEFERRABLE INITIALLY DEFERRED)";
    foreign.batch_execute(tables).await.unwrap();
    let held = claimed(&store, "k").await;
    let (sale, shelf) =
        (sql("INSERT INTO sale VALUES ('cup')"), sql("INSERT INTO shelf VALUES ('cup')"));
    let commit = store.commit(&done(&held), &[sale]).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 0 });
    assert_eq!(status(&store, &held).await, Status::Claimed);
    let both = [sql("INSERT INTO sale VALUES ('cup')"), shelf];
    assert_eq!(store.commit(&done(&held), &both).await.unwrap(), Commit::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_cannot_end_the_transaction() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    server.foreign().await.batch_execute(STOCK).await.unwrap();
    let held = claimed(&store, "k").await;
    for statement in [
        "COMMIT",
        "/* INSERT */ ROLLBACK",
        "SELECT 1",
        "INSERT INTO stock (sku) VALUES ('a'); COMMIT",
        "BEGIN",
        "SET synchronous_commit = off",
        "DO $$ BEGIN COMMIT; END $$",
        "VACUUM",
        "",
    ] {
        let staged = [sql("INSERT INTO stock (sku) VALUES ('cup')"), sql(statement)];
        let error = store.commit(&done(&held), &staged).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged, "{statement}: {error}");
        assert_eq!(status(&store, &held).await, Status::Claimed, "{statement}");
    }
    let rows = server.foreign().await.number("SELECT count(*) FROM stock").await;
    assert_eq!(rows, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_that_goes_on_after_a_failure_or_ends_the_transaction_is_not_told_as_done() {
    let (server, store) = lone().await;
    server.foreign().await.batch_execute(STOCK).await.unwrap();
    let held = claimed(&store, "k").await;
    // A commit of a transaction that failed is answered like any other, and takes all back.
    let goes_on = InTransaction::new(|transaction| {
        Box::pin(async move {
            let _ = transaction.execute("DELETE FROM nowhere", &[]).await;
            Ok(())
        })
    });
    let ends = InTransaction::new(|transaction| {
        Box::pin(async move { Ok(transaction.batch_execute("ROLLBACK").await?) })
    });
    for (closure, named) in [(goes_on, "it went on"), (ends, "ended the transaction")] {
        let error = store.commit(&done(&held), &[add("a", 1), closure.into()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(status(&store, &held).await, Status::Claimed);
    }
    let panics = InTransaction::new(|_| Box::pin(async { panic!("no more") }));
    let mut panicking = {
        let (store, write) = (store.clone(), done(&held));
        spawn(async move { store.commit(&write, &[add("a", 1), panics.into()]).await })
    };
    assert!(panicking.join().await.is_err());
    let refuses = InTransaction::new(|_| Box::pin(async { Err(Abort::Refused) }));
    let commit = store.commit(&done(&held), &[add("a", 1), refuses.into()]).await;
    assert_eq!(commit.unwrap(), Commit::Refused { index: 1 });
    let rows = server.foreign().await.number("SELECT count(*) FROM stock").await;
    assert_eq!(rows, Some(0));
    assert_eq!(store.commit(&done(&held), &[add("a", 1)]).await.unwrap(), Commit::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_unique_key_is_refused_with_the_remedy() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    foreign.batch_execute("CREATE TABLE stock (sku TEXT, available BIGINT)").await.unwrap();
    let held = claimed(&store, "k").await;
    let error = store.commit(&done(&held), &[add("a", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staged);
    assert!(error.to_string().contains("unique constraint"), "{error}");
    assert_eq!(status(&store, &held).await, Status::Claimed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sum_past_what_a_column_holds_is_refused_and_a_row_needs_only_its_key_to_be_added_to() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    let table = "CREATE TABLE stock (sku TEXT PRIMARY KEY, name TEXT NOT NULL, available INTEGER);
        INSERT INTO stock VALUES ('most', 'm', 2147483647), ('none', 'n', NULL), ('debt', 'd', -5)";
    foreign.batch_execute(table).await.unwrap();
    let held = claimed(&store, "k").await;
    let refused = Commit::Refused { index: 0 };
    for staged in [add("most", 1), add("none", 3_000_000_000), add("debt", 1)] {
        assert_eq!(store.commit(&done(&held), &[staged]).await.unwrap(), refused);
    }
    // A row that is made needs more than its key here: that is a fault, not a condition.
    let error = store.commit(&done(&held), &[add("new", 1)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staged);
    assert_eq!(store.commit(&done(&held), &[add("none", 1)]).await.unwrap(), Commit::Applied);
}

#[tokio::test(flavor = "multi_thread")]
async fn any_text_is_kept_and_a_staged_one_that_cannot_be_is_refused_at_the_call() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let (mut write, held) = first_claim("a\0b\u{ffff}", "first");
    let Change::Create(record) = &mut write.change else { panic!("not a creation") };
    record.error = Some("\0".to_owned());
    record.message_id = Some("\u{ffff}0".to_owned());
    record.output = Some(Output::Stored("{\"é\": \"\\u0000\"}  ".to_owned()));
    let written = Record::clone(record);
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(store.load(&held.id).await.unwrap(), Some(written));

    let nul = |text: &str| RowValue::from(format!("{text}\0"));
    let put = |table: &str, sku: RowValue| RowWrite::PutIfAbsent {
        table: table.to_owned(),
        key: Columns::from([("sku".to_owned(), sku)]),
        values: Columns::new(),
    };
    let statement = SqlStatement {
        sql: "INSERT INTO stock (sku) VALUES ($1)".to_owned(),
        params: vec!["a\0".into()],
        expect_changes: None,
    };
    for staged in
        [put("stock", nul("a")).into(), put("st\0ock", "a".into()).into(), statement.into()]
    {
        let error = store.accepts(&staged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains("U+0000"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_what_is_wrong_and_quote_no_value() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    server.foreign().await.batch_execute(STOCK).await.unwrap();
    let held = claimed(&store, "k").await;
    let wrong = |text: &str, value: &str| -> StagedWrite {
        let params = vec![value.into()];
        SqlStatement { sql: text.to_owned(), params, expect_changes: None }.into()
    };
    for (staged, named) in [
        (wrong("INSERT INTO stock (sku, size) VALUES ('a', $1)", "secret"), "22P02"),
        (wrong("INSERT INTO stock (sku, nowhere) VALUES ('a', $1)", "secret"), "nowhere"),
        (wrong("DELETE FROM missing WHERE a = $1", "secret"), "missing"),
        (wrong("DELETE FROM stock", "secret"), "42P18"),
        (wrong("DELETE FROM stock WHERE sku = $1 OR name = $2", "secret"), "parameters"),
    ] {
        let error = store.commit(&done(&held), &[staged]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged, "{error}");
        let said = format!("{error} {error:?}");
        assert!(said.contains(named) && !said.contains("secret"), "{said}");
        assert_eq!(status(&store, &held).await, Status::Claimed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_once_by_many_at_a_time_and_looking_makes_nothing() {
    let server = Postgres::start();
    let missing = PostgresStore::open_existing(&server.url()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::StoreRefused);
    assert!(missing.to_string().contains("onlyonce setup"), "{missing}");
    let foreign = server.foreign().await;
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'onlyonce%'";
    assert_eq!(foreign.number(tables).await, Some(0));

    let making: Vec<Task<_>> = (0..16)
        .map(|_| {
            let url = server.url();
            spawn(async move { PostgresStore::create(&url).await.unwrap() })
        })
        .collect();
    let mut made = 0;
    for mut task in making {
        made += usize::from(task.join().await.unwrap());
    }
    assert_eq!((made, foreign.number(tables).await), (1, Some(3)));
    assert!(!PostgresStore::create(&server.url()).await.unwrap());

    // What an operator runs by hand is the same.
    foreign.batch_execute("CREATE SCHEMA work; SET search_path = work").await.unwrap();
    foreign.batch_execute(include_str!("../../infra/postgres.sql")).await.unwrap();
    let elsewhere = format!("{}&options=-csearch_path%3Dwork", server.url());
    assert!(!PostgresStore::create(&elsewhere).await.unwrap());
    let store = PostgresStore::open_existing(&elsewhere).await.unwrap();
    claimed(&store, "k").await;
    assert_eq!(foreign.number("SELECT count(*) FROM work.onlyonce").await, Some(1));

    // Tables of a version before are not worked with.
    foreign.batch_execute("UPDATE onlyonce_schema SET version = 0").await.unwrap();
    let older = PostgresStore::open_existing(&elsewhere).await.unwrap_err();
    assert!(older.to_string().contains("earlier version"), "{older}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_and_records_of_a_later_version_are_left_alone() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    let held = claimed(&store, "k").await;
    let foreign = server.foreign().await;
    let later = "ALTER TABLE onlyonce ADD COLUMN later TEXT; UPDATE onlyonce SET later = 'kept'; \
        INSERT INTO onlyonce_schema VALUES (2)";
    foreign.batch_execute(later).await.unwrap();
    let store = PostgresStore::open_existing(&server.url()).await.unwrap();
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    let kept = "SELECT count(*) FROM onlyonce WHERE later = 'kept'";
    assert_eq!(foreign.number(kept).await, Some(1));

    let newer = claimed(&store, "newer").await;
    foreign.batch_execute("UPDATE onlyonce SET v = 2 WHERE key = 'newer'").await.unwrap();
    for write in [first_claim("newer", "second").0, done(&newer)] {
        let error = store.commit(&write, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record);
        assert!(error.to_string().contains("version 2"), "{error}");
    }
    foreign.batch_execute("UPDATE onlyonce SET v = 1, effects = '[1]'").await.unwrap();
    let error = store.load(&held.id).await.unwrap_err();
    assert!(error.to_string().contains("column effects"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_read_and_write_rows_is_enough() {
    let server = Postgres::start();
    store_on(&server).await;
    let foreign = server.foreign().await;
    let role = "CREATE ROLE worker LOGIN;
        GRANT SELECT, INSERT, UPDATE, DELETE ON onlyonce, onlyonce_outbox TO worker;
        GRANT SELECT ON onlyonce_schema TO worker";
    foreign.batch_execute(role).await.unwrap();
    let store = PostgresStore::open_existing(&server.url_as("worker")).await.unwrap();
    let held = claimed(&store, "k").await;
    let text = |name: &str, text: &str| (name.to_owned(), RowValue::from(text));
    let entry = RowWrite::PutIfAbsent {
        table: store.capabilities().outbox.unwrap(),
        key: Columns::from([text("order_key", "o"), text("event_id", "1")]),
        values: Columns::from([
            text("event", "order.placed"),
            text("body", "{}"),
            ("created_at".to_owned(), RowValue::from(7)),
        ]),
    };
    assert_eq!(store.commit(&done(&held), &[entry.into()]).await.unwrap(), Commit::Applied);
    let unsent = "SELECT seq FROM onlyonce_outbox WHERE sent_at IS NULL AND taken_until = 0";
    assert_eq!(foreign.number(unsent).await, Some(1));

    // What it may not touch is named.
    foreign.batch_execute("REVOKE UPDATE ON onlyonce FROM worker").await.unwrap();
    let other = claimed(&store, "other").await;
    let error = store.commit(&done(&other), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused);
    assert!(error.to_string().contains("permission denied"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_on_the_disk_whatever_the_server_does_otherwise() {
    let server = Postgres::with(&["fsync=off", "listen_addresses=", "synchronous_commit=off"]);
    let store = store_on(&server).await;
    let foreign = server.foreign().await;
    foreign.batch_execute("CREATE TABLE seen (name TEXT, value TEXT)").await.unwrap();
    let held = claimed(&store, "k").await;
    let ask = sql("INSERT INTO seen SELECT name, setting FROM pg_settings WHERE name IN \
        ('synchronous_commit', 'lock_timeout', 'statement_timeout', 'transaction_isolation', \
        'idle_in_transaction_session_timeout')");
    assert_eq!(store.commit(&done(&held), &[ask]).await.unwrap(), Commit::Applied);
    let rows = foreign.query("SELECT name || ' ' || value FROM seen ORDER BY 1", &[]).await;
    let seen: Vec<String> = rows.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(
        seen,
        [
            "idle_in_transaction_session_timeout 10000",
            "lock_timeout 2000",
            "statement_timeout 5000",
            "synchronous_commit on",
            "transaction_isolation read committed",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_is_deleted_by_the_documented_statement_and_no_other() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    for (key, status, expires) in [
        ("old", Status::Completed, Some(1_000)),
        ("kept", Status::Completed, None),
        ("unknown", Status::Unknown, Some(1_000)),
        ("new", Status::Completed, Some(4_000_000_000)),
    ] {
        let (mut write, _) = first_claim(key, "first");
        let Change::Create(record) = &mut write.change else { panic!("not a creation") };
        Field::Status(status).apply(record);
        let expires = expires.map(onlyonce::protocol::EpochSeconds::from_secs);
        Field::ExpiresAt(expires).apply(record);
        assert_eq!(write.expect, Expect::Absent);
        store.commit(&write, &[]).await.unwrap();
    }
    let shown = include_str!("../../infra/postgres.sql");
    let delete = shown.lines().skip_while(|line| !line.contains("DELETE FROM onlyonce WHERE pk"));
    let delete: String = delete.map(|line| line.trim_start_matches('-')).collect();
    let foreign = server.foreign().await;
    assert_eq!(foreign.execute(&delete, &[]).await.unwrap(), 1);
    let rows = foreign.query("SELECT key FROM onlyonce ORDER BY key", &[]).await.unwrap();
    let left: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["kept", "new", "unknown"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_records_are_scanned_by_the_index() {
    let server = Postgres::start();
    let store = store_on(&server).await;
    for n in 0..5 {
        let (mut write, _) = first_claim(&format!("failed {n}"), "first");
        let Change::Create(record) = &mut write.change else { panic!("not a creation") };
        Field::Status(Status::Failed).apply(record);
        store.commit(&write, &[]).await.unwrap();
    }
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(Status::Failed, after, 2).await.unwrap();
        keys.extend(page.records.into_iter().map(|record| record.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    keys.sort();
    assert_eq!(keys, ["failed 0", "failed 1", "failed 2", "failed 3", "failed 4"]);
    let plan = "EXPLAIN SELECT * FROM onlyonce WHERE parked = 'failed' \
        AND (updated_at, pk) > (0, '') ORDER BY updated_at, pk LIMIT 3";
    let foreign = server.foreign().await;
    foreign.batch_execute("SET enable_seqscan = off").await.unwrap();
    let plan = foreign.query(plan, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("onlyonce_parked")), "{plan:?}");
    assert!(!plan.iter().any(|line| line.contains("Sort")), "{plan:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_or_silent_is_unavailable_within_bounds() {
    let mut server = Postgres::start();
    let store = store_on(&server).await;
    let held = claimed(&store, "k").await;
    server.kill();
    for _ in 0..3 {
        let error = store.commit(&done(&held), &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    }
    server.start_again();
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);

    // A port that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://ada:s3cret@{}/jobs", silent.local_addr().unwrap());
    let opened = tokio::time::timeout(Duration::from_secs(10), PostgresStore::open_existing(&url));
    let error = opened.await.expect("bounded by the store's own patience").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    let said = format!("{error} {error:?}");
    assert!(said.contains("127.0.0.1") && !said.contains("s3cret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_falls_silent_is_given_up_within_bounds_and_replaced() {
    let (server, store) = lone().await;
    let held = claimed(&store, "k").await;
    let process = server.foreign().await.number(CONNECTION).await.unwrap().to_string();
    let signal = |name: &str| {
        let sent =
            std::process::Command::new("kill").args([name, process.as_str()]).status().unwrap();
        assert!(sent.success());
    };
    signal("-STOP");
    let commit = async { store.commit(&done(&held), &[]).await };
    let commit = tokio::time::timeout(Duration::from_secs(15), commit).await;
    let next = status(&store, &held).await;
    signal("-CONT");
    let error = commit.expect("bounded by the store's own patience").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    assert_eq!(next, Status::Claimed, "by a connection of its own");
}
