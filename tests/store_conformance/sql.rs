//! Staged SQL, alike on SQLite and on Postgres.

use std::sync::Arc;

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{ConditionalWrite, Held, Output, Retention, Status, complete};
use onlyonce::store::sql::Abort;
use onlyonce::store::{
    Columns, Commit, PostgresStore, RowValue, RowWrite, SqlStatement, SqlValue, SqliteStore,
    StagedWrite, Store, postgres, sqlite,
};

use crate::records::{NOW, first_claim};
use crate::server::{Foreign, Postgres};

/// Payments and stock of the application's own, next to the records. What the databases say
/// differently is given to each.
const TABLES: &str = "
    CREATE TABLE payments (idempotency_key TEXT PRIMARY KEY, cents BIGINT NOT NULL);
    CREATE TABLE stock (sku TEXT PRIMARY KEY, available BIGINT NOT NULL CHECK (available >= 0));
    CREATE TABLE lines (sku TEXT NOT NULL REFERENCES stock (sku), note TEXT);
    INSERT INTO stock VALUES ('cup', 5);";

enum Database {
    Sqlite(rusqlite::Connection, std::path::PathBuf),
    Postgres { foreign: Foreign, _server: Postgres },
}

struct Shop {
    store: Arc<dyn Store>,
    database: Database,
}

impl Shop {
    /// One on each.
    async fn both() -> [Self; 2] {
        let name = format!("onlyonce-{:016x}", fastrand::Rng::new().u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("jobs.db");
        let store = SqliteStore::open(&file).await.unwrap();
        let connection = rusqlite::Connection::open(&file).unwrap();
        let sqlite =
            Self { store: Arc::new(store), database: Database::Sqlite(connection, folder) };

        let server = Postgres::start();
        PostgresStore::create(&server.url()).await.unwrap();
        let store = PostgresStore::open_existing(&server.url()).await.unwrap();
        let foreign = server.foreign().await;
        let postgres = Self {
            store: Arc::new(store),
            database: Database::Postgres { foreign, _server: server },
        };
        for shop in [&sqlite, &postgres] {
            shop.run(TABLES, TABLES).await;
        }
        [sqlite, postgres]
    }

    async fn run(&self, on_sqlite: &str, on_postgres: &str) {
        match &self.database {
            Database::Sqlite(connection, _) => connection.execute_batch(on_sqlite).unwrap(),
            Database::Postgres { foreign, .. } => foreign.batch_execute(on_postgres).await.unwrap(),
        }
    }

    async fn number(&self, sql: &str) -> i64 {
        match &self.database {
            Database::Sqlite(connection, _) => {
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
            Database::Postgres { foreign, .. } => foreign.number(sql).await.unwrap(),
        }
    }

    fn name(&self) -> &'static str {
        match &self.database {
            Database::Sqlite(..) => "sqlite",
            Database::Postgres { .. } => "postgres",
        }
    }

    async fn payments(&self) -> i64 {
        self.number("SELECT count(*) FROM payments").await
    }

    async fn cups(&self) -> i64 {
        self.number("SELECT available FROM stock WHERE sku = 'cup'").await
    }

    async fn claimed(&self, key: &str) -> Held {
        let (write, held) = first_claim(key, "first");
        assert_eq!(self.store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        held
    }

    async fn status(&self, held: &Held) -> Status {
        self.store.load(&held.id).await.unwrap().unwrap().status
    }

    /// A closure that takes so many cups, and refuses what would leave fewer than none.
    fn take_in_closure(&self, cups: i64) -> StagedWrite {
        match &self.database {
            Database::Sqlite(..) => sqlite::InTransaction::new(move |transaction| {
                let left: i64 = transaction.query_row(
                    "SELECT available FROM stock WHERE sku = 'cup'",
                    [],
                    |row| row.get(0),
                )?;
                if left < cups {
                    return Err(Abort::Refused);
                }
                let take = "UPDATE stock SET available = available - ?1 WHERE sku = 'cup'";
                transaction.execute(take, [cups])?;
                Ok(())
            })
            .into(),
            Database::Postgres { .. } => postgres::InTransaction::new(move |transaction| {
                Box::pin(async move {
                    let left = "SELECT available FROM stock WHERE sku = 'cup' FOR UPDATE";
                    let left: i64 = transaction.query_one(left, &[]).await?.get(0);
                    if left < cups {
                        return Err(Abort::Refused);
                    }
                    let take = "UPDATE stock SET available = available - $1 WHERE sku = 'cup'";
                    transaction.execute(take, &[&cups]).await?;
                    Ok(())
                })
            })
            .into(),
        }
    }

    /// A closure that runs one statement.
    fn closure(&self, sql: &'static str) -> StagedWrite {
        match &self.database {
            Database::Sqlite(..) => {
                sqlite::InTransaction::new(|transaction| Ok(transaction.execute_batch(sql)?)).into()
            }
            Database::Postgres { .. } => postgres::InTransaction::new(|transaction| {
                Box::pin(async { Ok(transaction.batch_execute(sql).await?) })
            })
            .into(),
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        if let Database::Sqlite(_, folder) = &self.database {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn done(held: &Held) -> ConditionalWrite {
    complete(held, Output::Omitted, Retention::Forever, NOW).0
}

fn sql(text: &str, params: Vec<SqlValue>, expect_changes: Option<u64>) -> StagedWrite {
    SqlStatement { sql: text.to_owned(), params, expect_changes }.into()
}

fn pay(key: &str, cents: i64) -> StagedWrite {
    let text = "INSERT INTO payments (cents, idempotency_key) VALUES ($2, $1)";
    sql(text, vec![key.into(), cents.into()], Some(1))
}

fn take(cups: i64) -> StagedWrite {
    let text = "UPDATE stock SET available = available - $1 WHERE sku = $2 AND available >= $1";
    sql(text, vec![cups.into(), "cup".into()], Some(1))
}

fn put(table: &str, key: &str, cents: i64) -> StagedWrite {
    RowWrite::PutIfAbsent {
        table: table.to_owned(),
        key: Columns::from([("idempotency_key".to_owned(), RowValue::from(key))]),
        values: Columns::from([("cents".to_owned(), RowValue::from(cents))]),
    }
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_and_its_stock_land_with_the_completion_or_not_at_all() {
    for shop in Shop::both().await {
        let held = shop.claimed("k").await;
        // Too few cups: the payment does not land either, nor does the completion.
        let commit = shop.store.commit(&done(&held), &[pay("k", 12), take(6)]).await.unwrap();
        assert_eq!(commit, Commit::Refused { index: 1 }, "{}", shop.name());
        assert_eq!((shop.payments().await, shop.cups().await), (0, 5));
        assert_eq!(shop.status(&held).await, Status::Claimed);

        let both = [pay("k", 12), take(2)];
        assert_eq!(shop.store.commit(&done(&held), &both).await.unwrap(), Commit::Applied);
        assert_eq!((shop.payments().await, shop.cups().await), (1, 3));
        assert_eq!(shop.number("SELECT cents FROM payments").await, 12);

        // A late owner's statements mean nothing, whatever they would do.
        let late = shop.store.commit(&done(&held), &[pay("l", 12), take(2)]).await.unwrap();
        assert!(matches!(late, Commit::Conflict(Some(_))), "{late:?}");
        assert_eq!((shop.payments().await, shop.cups().await), (1, 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unique_constraint_refuses_a_second_payment_in_every_form() {
    for shop in Shop::both().await {
        let held = shop.claimed("k").await;
        assert_eq!(shop.store.commit(&done(&held), &[pay("k", 1)]).await.unwrap(), Commit::Applied);
        let held = shop.claimed("another key for the same payment").await;
        let again = shop.closure("INSERT INTO payments VALUES ('k', 3)");
        for second in [pay("k", 2), put("payments", "k", 2), again] {
            let form = second.form();
            let commit = shop.store.commit(&done(&held), &[take(1), second]).await.unwrap();
            assert_eq!(commit, Commit::Refused { index: 1 }, "{} {form}", shop.name());
            assert_eq!(shop.status(&held).await, Status::Claimed);
        }
        assert_eq!((shop.payments().await, shop.cups().await), (1, 5));
        // Two of one commit meet as well.
        let twice = [put("payments", "m", 2), pay("m", 2)];
        let commit = shop.store.commit(&done(&held), &twice).await.unwrap();
        assert_eq!(commit, Commit::Refused { index: 1 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_constraint_refuses_and_a_fault_is_an_error() {
    for shop in Shop::both().await {
        shop.run(
            "CREATE TRIGGER closed BEFORE DELETE ON stock BEGIN SELECT RAISE(ABORT, 'no'); END",
            "CREATE FUNCTION closed() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'no'; END $$;
             CREATE TRIGGER closed BEFORE DELETE ON stock EXECUTE FUNCTION closed();
             CREATE TABLE stays (span INT8RANGE, EXCLUDE USING gist (span WITH &&));
             INSERT INTO stays VALUES ('[1,5)')",
        )
        .await;
        let held = shop.claimed("k").await;
        let mut refused = vec![
            "UPDATE stock SET available = available - 6",
            "INSERT INTO lines VALUES ('none', 'x')",
            "DELETE FROM stock",
            "INSERT INTO stock VALUES ('cup', 1)",
        ];
        if shop.name() == "postgres" {
            refused.push("INSERT INTO stays VALUES ('[4,6)')");
        }
        for statement in refused {
            let commit = shop.store.commit(&done(&held), &[sql(statement, vec![], None)]).await;
            assert_eq!(commit.unwrap(), Commit::Refused { index: 0 }, "{statement}");
            assert_eq!(shop.status(&held).await, Status::Claimed);
        }
        for statement in [
            "INSERT INTO payments VALUES ('k', NULL)",
            "DELETE FROM nowhere",
            "DELETE FROM stock WHERE nothing = 1",
            "DELETE FORM stock",
        ] {
            let commit = shop.store.commit(&done(&held), &[sql(statement, vec![], None)]).await;
            let error = commit.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Staged, "{} {statement}: {error}", shop.name());
            assert_eq!(shop.status(&held).await, Status::Claimed);
        }
        // More or fewer rows than were promised.
        for (statement, rows) in [("UPDATE stock SET available = 4", 2), ("DELETE FROM lines", 1)] {
            let staged = sql(statement, vec![], Some(rows));
            let commit = shop.store.commit(&done(&held), &[staged]).await.unwrap();
            assert_eq!(commit, Commit::Refused { index: 0 }, "{statement}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_lands_with_the_completion_or_not_at_all() {
    for shop in Shop::both().await {
        let held = shop.claimed("k").await;
        let staged = [pay("k", 1), shop.take_in_closure(2), shop.take_in_closure(4)];
        let commit = shop.store.commit(&done(&held), &staged).await.unwrap();
        assert_eq!(commit, Commit::Refused { index: 2 }, "{}", shop.name());
        let missing = shop.closure("DELETE FROM nowhere");
        let error = shop.store.commit(&done(&held), &[pay("k", 1), missing]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains("nowhere"), "{error}");
        assert_eq!((shop.payments().await, shop.cups().await), (0, 5));
        assert_eq!(shop.status(&held).await, Status::Claimed);

        let staged = [shop.take_in_closure(2), pay("k", 1), shop.take_in_closure(3)];
        assert_eq!(shop.store.commit(&done(&held), &staged).await.unwrap(), Commit::Applied);
        assert_eq!((shop.payments().await, shop.cups().await), (1, 0));
        // It runs again with a commit that is sent again, and lands once.
        let again = shop.store.commit(&done(&held), &staged).await.unwrap();
        assert!(matches!(again, Commit::Conflict(Some(_))));
        assert_eq!((shop.payments().await, shop.cups().await), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_every_kind_arrive_as_they_are() {
    for shop in Shop::both().await {
        let table = "CREATE TABLE seen (i BIGINT, r DOUBLE PRECISION, t TEXT, ";
        let (sqlite, postgres) = (
            format!("{table} b BLOB, n TEXT, yes BOOLEAN)"),
            format!("{table} b BYTEA, n TEXT, yes BOOLEAN)"),
        );
        shop.run(&sqlite, &postgres).await;
        let held = shop.claimed("k").await;
        let text = "it's \"ключ\" \\x \u{1F4A3} ${1}";
        let put = sql(
            "INSERT INTO seen VALUES ($1, $2, $3, $4, $5, $6)",
            vec![
                i64::MIN.into(),
                0.1.into(),
                text.into(),
                vec![0u8, 0xff, b'\\'].into(),
                SqlValue::Null,
                true.into(),
            ],
            Some(1),
        );
        // And they are found by what they are.
        let found = sql(
            "UPDATE seen SET n = 'found' WHERE i = $1 AND r = $2 AND t = $3 AND b = $4 \
                AND n IS NULL AND yes",
            vec![i64::MIN.into(), 0.1.into(), text.into(), vec![0u8, 0xff, b'\\'].into()],
            Some(1),
        );
        let commit = shop.store.commit(&done(&held), &[put, found]).await.unwrap();
        assert_eq!(commit, Commit::Applied, "{}", shop.name());
        assert_eq!(shop.number("SELECT i FROM seen WHERE n = 'found'").await, i64::MIN);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outbox_is_a_table_like_any_other() {
    for shop in Shop::both().await {
        let table = shop.store.capabilities().outbox.unwrap();
        let text = |name: &str, text: &str| (name.to_owned(), RowValue::from(text));
        let entry = |event: &str| -> StagedWrite {
            RowWrite::PutIfAbsent {
                table: table.clone(),
                key: Columns::from([text("order_key", "o"), text("event_id", event)]),
                values: Columns::from([
                    text("event", "order.placed"),
                    text("body", "{\"order\":7}"),
                    ("created_at".to_owned(), RowValue::from(7)),
                    ("until".to_owned(), RowValue::from(9)),
                ]),
            }
            .into()
        };
        let held = shop.claimed("k").await;
        let twice = [entry("1"), entry("1")];
        let commit = shop.store.commit(&done(&held), &twice).await.unwrap();
        assert_eq!(commit, Commit::Refused { index: 1 }, "{}", shop.name());
        let both = [entry("2"), entry("1")];
        assert_eq!(shop.store.commit(&done(&held), &both).await.unwrap(), Commit::Applied);
        let first = "SELECT count(*) FROM onlyonce_outbox a JOIN onlyonce_outbox b \
            ON a.seq < b.seq WHERE a.event_id = '2' AND b.event_id = '1' \
            AND a.sent_at IS NULL AND b.taken_until = 0";
        assert_eq!(shop.number(first).await, 1, "in the order they were staged");

        shop.run("DROP TABLE onlyonce_outbox", "DROP TABLE onlyonce_outbox").await;
        let held = shop.claimed("l").await;
        let error = shop.store.commit(&done(&held), &[entry("3")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains("onlyonce setup"), "{error}");
    }
}
