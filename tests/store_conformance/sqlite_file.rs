//! The SQLite store on a file of its own, and what only it can do.

use std::path::PathBuf;
use std::sync::Arc;

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{
    Change, ConditionalWrite, Field, Held, Output, Retention, Status, complete,
};
use onlyonce::runtime::{Clock, SystemClock, Task, spawn};
use onlyonce::store::sql::Abort;
use onlyonce::store::sqlite::InTransaction;
use onlyonce::store::{
    Columns, Commit, RowValue, RowWrite, SqlStatement, SqlValue, SqliteStore, StagedWrite, Store,
};
use rusqlite::Connection;

use crate::kept::Kept;
use crate::records::{NOW, SECOND, effects, first_claim};
use crate::scratch::Scratch;

impl Scratch {
    fn file(&self) -> PathBuf {
        self.0.join("jobs.db")
    }

    async fn store(&self) -> SqliteStore {
        SqliteStore::open(self.file()).await.unwrap()
    }

    /// The file as another program sees it.
    fn foreign(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

/// A store on a file of its own; rows go to the table `stock`.
pub async fn store() -> Arc<dyn Store> {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    Arc::new(Kept { store: Arc::new(store), _keeps: folder })
}

const STOCK: &str = "CREATE TABLE stock (sku TEXT PRIMARY KEY, available INTEGER, \
    name TEXT, size INTEGER, sold INTEGER, reserved INTEGER)";

async fn claimed(store: &SqliteStore) -> Held {
    let (write, held) = first_claim("k", "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    held
}

fn done(held: &Held) -> ConditionalWrite {
    complete(held, Output::Omitted, Retention::Forever, NOW).0
}

async fn status(store: &SqliteStore, held: &Held) -> Status {
    store.load(&held.id).await.unwrap().unwrap().status
}

fn sql(text: &str, params: Vec<SqlValue>, expect_changes: Option<u64>) -> StagedWrite {
    SqlStatement { sql: text.to_owned(), params, expect_changes }.into()
}

fn add(table: &str, sku: &str, column: &str, by: i64) -> StagedWrite {
    RowWrite::Add {
        table: table.to_owned(),
        key: Columns::from([("sku".to_owned(), RowValue::from(sku))]),
        add: [(column.to_owned(), by)].into(),
        floor: [(column.to_owned(), 0)].into(),
    }
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_stores_racing_on_one_file_one_wins() {
    let folder = Scratch::new();
    for round in 0..10 {
        let mut racing: Vec<Task<_>> = Vec::new();
        for n in 0..8 {
            // Each opens the file itself, the first time before it is there.
            let file = folder.file();
            racing.push(spawn(async move {
                let store = SqliteStore::open(file).await.unwrap();
                let (write, _) = first_claim(&format!("k{round}"), &format!("claim-{n}"));
                store.commit(&write, &[]).await.unwrap()
            }));
        }
        let mut landed = 0;
        for mut task in racing {
            landed += usize::from(task.join().await.unwrap() == Commit::Applied);
        }
        assert_eq!(landed, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_may_open_a_new_file_at_once() {
    for _ in 0..5 {
        let folder = Scratch::new();
        let open = |_| {
            let file = folder.file();
            spawn(async move { SqliteStore::create(file).await.unwrap() })
        };
        let opening: Vec<Task<_>> = (0..16).map(open).collect();
        let mut made = 0;
        for mut task in opening {
            made += usize::from(task.join().await.unwrap());
        }
        assert_eq!(made, 1);
    }
}

#[tokio::test]
async fn opening_waits_for_whoever_has_the_file() {
    let folder = Scratch::new();
    let foreign = folder.foreign();
    // A reader: it is in the way of the switch to the log, and of nothing else.
    foreign.execute_batch("CREATE TABLE t (x); BEGIN; SELECT * FROM t").unwrap();
    let file = folder.file();
    let mut opening = spawn(async move { SqliteStore::create(file).await });
    SystemClock.sleep_until(SystemClock.now() + SECOND / 4).await;
    foreign.execute_batch("COMMIT").unwrap();
    assert!(opening.join().await.unwrap().unwrap());

    // A writer is in nobody's way, once the table is there.
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(!SqliteStore::create(folder.file()).await.unwrap());
}

#[tokio::test]
async fn a_record_survives_reopening() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    store.commit(&done(&held), &[]).await.unwrap();
    let before = store.load(&held.id).await.unwrap();
    drop(store);
    assert!(!SqliteStore::create(folder.file()).await.unwrap(), "it was there already");
    let store = SqliteStore::open_existing(folder.file()).await.unwrap();
    assert_eq!(store.load(&held.id).await.unwrap(), before);
}

#[tokio::test]
async fn a_commit_is_synced_to_a_log_that_others_read_beside() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let mode: String =
        folder.foreign().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    // The store's own connection cannot be asked from here, but through a staged write.
    folder.foreign().execute_batch("CREATE TABLE seen (level INTEGER)").unwrap();
    let held = claimed(&store).await;
    let ask =
        sql("INSERT INTO seen SELECT synchronous FROM pragma_synchronous", Vec::new(), Some(1));
    assert_eq!(store.commit(&done(&held), &[ask]).await.unwrap(), Commit::Applied);
    let level: i64 =
        folder.foreign().query_row("SELECT level FROM seen", [], |row| row.get(0)).unwrap();
    assert_eq!(level, 2, "FULL");
}

#[tokio::test]
async fn columns_of_a_later_version_survive_an_update() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    let later = "ALTER TABLE onlyonce ADD COLUMN later TEXT; UPDATE onlyonce SET later = 'kept'";
    folder.foreign().execute_batch(later).unwrap();
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    let kept: String =
        folder.foreign().query_row("SELECT later FROM onlyonce", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "kept");
    let (other, _) = first_claim("other", "first");
    assert_eq!(store.commit(&other, &[]).await.unwrap(), Commit::Applied);
}

#[tokio::test]
async fn a_record_of_a_later_version_fails_closed() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    folder.foreign().execute("UPDATE onlyonce SET v = 2", []).unwrap();
    // Not even its own claim writes it.
    for write in [first_claim("k", "second").0, done(&held)] {
        let error = store.commit(&write, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Record);
        assert!(error.to_string().contains("version 2"), "{error}");
    }
    let unchanged = "SELECT status FROM onlyonce WHERE rev = 1";
    let status: String = folder.foreign().query_row(unchanged, [], |row| row.get(0)).unwrap();
    assert_eq!(status, "claimed");
}

#[tokio::test]
async fn an_unreadable_column_is_named() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    folder.foreign().execute("UPDATE onlyonce SET effects = '[1]'", []).unwrap();
    let error = store.load(&held.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record);
    assert!(error.to_string().contains("column effects"), "{error}");
}

#[tokio::test]
async fn a_statement_lands_with_the_completion_or_not_at_all() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    let put = || {
        let params = vec!["cup".into(), 5.into()];
        sql("INSERT INTO stock (sku, available) VALUES (?1, ?2)", params, Some(1))
    };
    let take = |n: i64| {
        let text = "UPDATE stock SET available = available - ?1 \
            WHERE sku = ?2 AND available >= ?1";
        sql(text, vec![n.into(), "cup".into()], Some(1))
    };
    let held = claimed(&store).await;
    // The second finds too few, so the first does not land either, nor does the completion.
    let refused = store.commit(&done(&held), &[put(), take(6)]).await.unwrap();
    assert_eq!(refused, Commit::Refused { index: 1 });
    assert_eq!(status(&store, &held).await, Status::Claimed);
    assert_eq!(available(&folder), None);

    assert_eq!(store.commit(&done(&held), &[put(), take(2)]).await.unwrap(), Commit::Applied);
    assert_eq!(status(&store, &held).await, Status::Completed);
    assert_eq!(available(&folder), Some(3));

    // A late owner's statements mean nothing, whatever they would do.
    let late = store.commit(&done(&held), &[put(), take(2)]).await.unwrap();
    assert!(matches!(late, Commit::Conflict(Some(_))), "{late:?}");
    assert_eq!(available(&folder), Some(3));
}

fn available(folder: &Scratch) -> Option<i64> {
    let rows = "SELECT max(available) FROM stock";
    folder.foreign().query_row(rows, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_constraint_refuses_as_a_condition_does() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let tables = "CREATE TABLE shelf (sku TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0)) STRICT;
        CREATE TABLE sale (sku TEXT NOT NULL REFERENCES shelf (sku));
        CREATE TRIGGER closed BEFORE DELETE ON shelf BEGIN SELECT RAISE(ROLLBACK, 'closed'); END;
        INSERT INTO shelf VALUES ('cup', 1)";
    folder.foreign().execute_batch(tables).unwrap();
    let held = claimed(&store).await;
    for statement in [
        "UPDATE shelf SET n = n - 2",
        "INSERT INTO shelf VALUES ('cup', 3)",
        "INSERT INTO sale VALUES ('none')",
        "DELETE FROM shelf",
        "INSERT OR ROLLBACK INTO shelf VALUES ('cup', 3)",
    ] {
        let commit = store.commit(&done(&held), &[sql(statement, Vec::new(), None)]).await;
        assert_eq!(commit.unwrap(), Commit::Refused { index: 0 }, "{statement}");
        assert_eq!(status(&store, &held).await, Status::Claimed);
    }
    // A column left out or of the wrong type is a fault, not a condition.
    for statement in ["INSERT INTO sale VALUES (NULL)", "UPDATE shelf SET n = 'many'"] {
        let commit = store.commit(&done(&held), &[sql(statement, Vec::new(), None)]).await;
        assert_eq!(commit.unwrap_err().kind(), ErrorKind::Staged, "{statement}");
    }
}

#[tokio::test]
async fn a_deferred_constraint_refuses_at_the_end() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let tables = "CREATE TABLE shelf (sku TEXT PRIMARY KEY);
        CREATE TABLE sale (sku TEXT REFERENCES shelf (sku) DEFERRABLE INITIALLY DEFERRED)";
    folder.foreign().execute_batch(tables).unwrap();
    let held = claimed(&store).await;
    let sale = || sql("INSERT INTO sale VALUES ('cup')", vec![], Some(1));
    let shelf = sql("INSERT INTO shelf VALUES ('cup')", vec![], Some(1));
    let commit = store.commit(&done(&held), &[sale()]).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 0 });
    assert_eq!(status(&store, &held).await, Status::Claimed);
    assert_eq!(store.commit(&done(&held), &[sale(), shelf]).await.unwrap(), Commit::Applied);
}

#[tokio::test]
async fn a_statement_cannot_end_the_transaction() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    let held = claimed(&store).await;
    for statement in [
        "COMMIT",
        "END",
        "ROLLBACK",
        "SAVEPOINT here",
        "SELECT 1",
        "INSERT INTO stock (sku) VALUES ('a'); COMMIT",
        "BEGIN IMMEDIATE",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
        "VACUUM",
        "",
    ] {
        let staged = [
            sql("INSERT INTO stock (sku) VALUES ('cup')", Vec::new(), Some(1)),
            sql(statement, Vec::new(), None),
        ];
        let error = store.commit(&done(&held), &staged).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged, "{statement}: {error}");
        assert_eq!(status(&store, &held).await, Status::Claimed, "{statement}");
    }
    let count: i64 =
        folder.foreign().query_row("SELECT count(*) FROM stock", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
}

#[tokio::test]
async fn what_a_staged_write_misses_is_named() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    let held = claimed(&store).await;
    let keyless: StagedWrite = RowWrite::DeleteIf {
        table: "stock".to_owned(),
        key: Columns::new(),
        values: Columns::new(),
    }
    .into();
    for (staged, named) in [
        (add("nowhere", "a", "available", 1), "no such table: nowhere"),
        // Not the text 'nothing', as SQLite would read it.
        (add("stock", "a", "nothing", 1), "no such column: \"nothing\""),
        (sql("DELETE FROM nowhere", Vec::new(), None), "no such table: nowhere"),
        (sql("DELETE FROM stock WHERE \"sku \" = 1", Vec::new(), None), "no such column"),
        (sql("DELETE FROM stock WHERE sku = ?1", Vec::new(), None), "parameters"),
        (sql("DELETE FROM stock WHERE sku = $2", vec![1.into()], None), "parameters"),
        (sql("DELETE FROM stock WHERE sku = :sku", vec![1.into()], None), "parameters"),
        (sql("DELETE FROM stock", vec![1.into()], None), "parameters"),
        // To SQLite both are its first parameter.
        (
            sql("DELETE FROM stock WHERE sku = $2 OR sku = ?1", vec![1.into(), 2.into()], None),
            "parameters",
        ),
        (keyless, "without a key"),
    ] {
        let error = store.commit(&done(&held), &[staged]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains(named), "{error}");
        assert_eq!(status(&store, &held).await, Status::Claimed);
    }
}

#[tokio::test]
async fn names_mean_themselves() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let table = "drop\"; DELETE FROM onlyonce; --";
    let quoted =
        "CREATE TABLE \"drop\"\"; DELETE FROM onlyonce; --\" (sku TEXT, \"select\" INTEGER)";
    folder.foreign().execute_batch(quoted).unwrap();
    let held = claimed(&store).await;
    let staged = [add(table, "a", "select", 2), add(table, "a", "select", 3)];
    assert_eq!(store.commit(&done(&held), &staged).await.unwrap(), Commit::Applied);
    let sum = "SELECT \"select\" FROM \"drop\"\"; DELETE FROM onlyonce; --\"";
    let sum: i64 = folder.foreign().query_row(sum, [], |row| row.get(0)).unwrap();
    assert_eq!(sum, 5, "in one row, though nothing in the table says that there is one only");
}

#[tokio::test]
async fn only_whole_numbers_are_added_to() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let rows = "CREATE TABLE stock (sku TEXT PRIMARY KEY, available);
        INSERT INTO stock VALUES ('none', NULL), ('text', '7'), ('real', 1.5),
            ('most', 9223372036854775807)";
    folder.foreign().execute_batch(rows).unwrap();
    let held = claimed(&store).await;
    for sku in ["text", "real", "most"] {
        let commit = store.commit(&done(&held), &[add("stock", sku, "available", 1)]).await;
        assert_eq!(commit.unwrap(), Commit::Refused { index: 0 }, "{sku}");
    }
    let commit = store.commit(&done(&held), &[add("stock", "none", "available", 1)]).await;
    assert_eq!(commit.unwrap(), Commit::Applied);
}

#[tokio::test]
async fn a_number_past_63_bits_is_refused_and_not_stored_as_another() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let (mut write, held) = first_claim("k", "first");
    let Change::Create(record) = &mut write.change else { panic!("not a creation") };
    record.token.0 = u64::MAX;
    let error = store.commit(&write, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused);
    assert_eq!(store.load(&held.id).await.unwrap(), None);
}

#[tokio::test]
async fn parked_records_of_one_instant_are_all_scanned_by_the_index() {
    let folder = Scratch::new();
    let store = folder.store().await;
    for n in 0..5 {
        let (mut write, _) = first_claim(&format!("failed {n}"), "first");
        let Change::Create(record) = &mut write.change else { panic!("not a creation") };
        Field::Status(Status::Failed).apply(record);
        Field::Effects(effects()).apply(record);
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

    let plan = "EXPLAIN QUERY PLAN SELECT * FROM onlyonce WHERE parked = ?1 \
        AND (updated_at, pk) > (?2, ?3) ORDER BY updated_at, pk LIMIT ?4";
    let plan: String =
        folder.foreign().query_row(plan, ("failed", 0, "", 3), |row| row.get("detail")).unwrap();
    assert!(plan.contains("USING INDEX onlyonce_parked"), "{plan}");
}

#[tokio::test]
async fn a_file_that_others_keep_busy_is_unavailable_within_bounds() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    let foreign = folder.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Reading goes on beside the writer.
    assert_eq!(status(&store, &held).await, Status::Claimed);
    let commit = tokio::time::timeout(SECOND * 10, async {
        store.commit(&done(&held), &[]).await.unwrap_err()
    });
    let error = commit.await.expect("bounded by the store's own patience");
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
}

#[tokio::test]
async fn what_is_missing_or_broken_is_refused_for_good() {
    let folder = Scratch::new();
    let missing = SqliteStore::open_existing(folder.file()).await.unwrap_err();
    assert!(missing.to_string().contains("jobs.db"), "{missing}");
    assert!(!folder.file().exists(), "looking makes nothing");

    folder.foreign().execute_batch(STOCK).unwrap();
    let foreign = SqliteStore::open_existing(folder.file()).await.unwrap_err();
    let mode: String =
        folder.foreign().query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "a foreign file is left as it is");

    let text = folder.0.join("text");
    std::fs::write(&text, "This is no database. ".repeat(100)).unwrap();
    let broken = SqliteStore::open(&text).await.unwrap_err();
    let nowhere = SqliteStore::open(folder.0.join("no/such/folder.db")).await.unwrap_err();
    let in_memory = SqliteStore::open(":memory:").await.unwrap_err();
    for error in [missing, foreign, broken, nowhere, in_memory] {
        assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
    }

    assert!(SqliteStore::create(folder.file()).await.unwrap());
    let store = folder.store().await;
    folder.foreign().execute_batch("DROP TABLE onlyonce").unwrap();
    let error = store.commit(&first_claim("k", "first").0, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused);
    assert!(error.to_string().contains("no such table: onlyonce"), "{error}");
}

#[tokio::test]
async fn parameters_mean_their_numbers_wherever_they_stand() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    let held = claimed(&store).await;
    let staged = [
        sql(
            "INSERT INTO stock (available, sku, size) VALUES ($2, $1, $2)",
            vec!["cup".into(), 5.into()],
            Some(1),
        ),
        sql("UPDATE stock SET name = ?2 WHERE sku = ?1", vec!["cup".into(), "c".into()], Some(1)),
    ];
    assert_eq!(store.commit(&done(&held), &staged).await.unwrap(), Commit::Applied);
    let row: (String, i64, i64, String) = folder
        .foreign()
        .query_row("SELECT sku, available, size, name FROM stock", [], |row| row.try_into())
        .unwrap();
    assert_eq!(row, ("cup".to_owned(), 5, 5, "c".to_owned()));
}

fn closure(
    work: impl Fn(&rusqlite::Transaction<'_>) -> Result<(), Abort> + Send + Sync + 'static,
) -> StagedWrite {
    InTransaction::new(work).into()
}

#[tokio::test]
async fn a_closure_lands_with_the_completion_or_not_at_all() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    folder.foreign().execute_batch("INSERT INTO stock (sku, available) VALUES ('cup', 5)").unwrap();
    let take = |by: i64| {
        closure(move |transaction| {
            transaction.execute("UPDATE stock SET available = available - ?1", [by])?;
            let left: i64 =
                transaction.query_row("SELECT available FROM stock", [], |row| row.get(0))?;
            if left < 0 { Err(Abort::Refused) } else { Ok(()) }
        })
    };
    let held = claimed(&store).await;
    let commit = store.commit(&done(&held), &[take(2), take(4)]).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 1 });
    assert_eq!(available(&folder), Some(5));
    // Its own error, the database's, and a constraint.
    let wrong = closure(|_| Err(Abort::from(std::io::Error::other("no shelf"))));
    let missing = closure(|transaction| Ok(transaction.execute_batch("DELETE FROM nowhere")?));
    for (staged, named) in [(wrong, "no shelf"), (missing, "no such table: nowhere")] {
        let error = store.commit(&done(&held), &[take(2), staged]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains(named), "{error}");
    }
    let twice = closure(|transaction| {
        Ok(transaction.execute_batch("INSERT INTO stock (sku) VALUES ('cup')")?)
    });
    let commit = store.commit(&done(&held), &[take(2), twice]).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 1 });
    assert_eq!((available(&folder), status(&store, &held).await), (Some(5), Status::Claimed));

    assert_eq!(store.commit(&done(&held), &[take(2), take(3)]).await.unwrap(), Commit::Applied);
    assert_eq!((available(&folder), status(&store, &held).await), (Some(0), Status::Completed));
}

#[tokio::test]
async fn a_closure_that_panics_or_ends_the_transaction_is_not_told_as_done() {
    let folder = Scratch::new();
    let store = folder.store().await;
    folder.foreign().execute_batch(STOCK).unwrap();
    let held = claimed(&store).await;
    let panics = closure(|transaction| {
        transaction.execute_batch("INSERT INTO stock (sku) VALUES ('cup')")?;
        panic!("no more");
    });
    let error = store.commit(&done(&held), &[panics]).await.unwrap_err();
    assert!(error.to_string().contains("no more"), "{error}");
    let ends = closure(|transaction| Ok(transaction.execute_batch("ROLLBACK")?));
    let error = store.commit(&done(&held), &[ends]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staged);
    assert!(error.to_string().contains("ended the transaction"), "{error}");
    assert_eq!(status(&store, &held).await, Status::Claimed);
    assert_eq!(store.commit(&done(&held), &[]).await.unwrap(), Commit::Applied);
    let count: i64 =
        folder.foreign().query_row("SELECT count(*) FROM stock", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

fn entry(order: &str, event: &str) -> StagedWrite {
    let text = |name: &str, text: &str| (name.to_owned(), RowValue::from(text));
    RowWrite::PutIfAbsent {
        table: "onlyonce_outbox".to_owned(),
        key: Columns::from([text("order_key", order), text("event_id", event)]),
        values: Columns::from([
            text("event", "order.placed"),
            text("body", "{}"),
            ("created_at".to_owned(), RowValue::from(7)),
        ]),
    }
    .into()
}

#[tokio::test]
async fn an_outbox_row_is_there_once_and_in_order() {
    let folder = Scratch::new();
    let store = folder.store().await;
    let held = claimed(&store).await;
    let twice = [entry("o", "1"), entry("o", "1")];
    let commit = store.commit(&done(&held), &twice).await.unwrap();
    assert_eq!(commit, Commit::Refused { index: 1 });
    let both = [entry("o", "2"), entry("o", "1")];
    assert_eq!(store.commit(&done(&held), &both).await.unwrap(), Commit::Applied);
    let foreign = folder.foreign();
    let mut rows = foreign
        .prepare("SELECT event_id FROM onlyonce_outbox WHERE sent_at IS NULL ORDER BY seq")
        .unwrap();
    let events: Vec<String> =
        rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(events, ["2", "1"]);
}

#[tokio::test]
async fn a_file_from_before_the_outbox_works_and_gets_it_when_it_is_set_up() {
    let folder = Scratch::new();
    drop(folder.store().await);
    folder.foreign().execute_batch("DROP TABLE onlyonce_outbox").unwrap();
    let store = SqliteStore::open_existing(folder.file()).await.unwrap();
    let held = claimed(&store).await;
    let error = store.commit(&done(&held), &[entry("o", "1")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staged);
    assert!(error.to_string().contains("onlyonce setup"), "{error}");
    assert_eq!(status(&store, &held).await, Status::Claimed);

    assert!(SqliteStore::create(folder.file()).await.unwrap());
    assert!(!SqliteStore::create(folder.file()).await.unwrap());
    let commit = store.commit(&done(&held), &[entry("o", "1")]).await;
    assert_eq!(commit.unwrap(), Commit::Applied);
}
