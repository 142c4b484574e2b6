//! The `row` effect of the jobs file on each store that stages rows: what the row shows afterwards.

#![cfg(all(feature = "jobs-file", feature = "sqlite", feature = "dynamodb", feature = "postgres"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "servers/postgres.rs"]
mod server;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use onlyonce::protocol::IdempotencyKey;
use onlyonce::runtime::SystemClock;
use onlyonce::service::{Deadline, Delivery, Ending, Outcome};
use onlyonce::store::{
    Columns, DynamoStore, MemoryStore, PostgresStore, RowValue, SqliteStore, Store,
};
use onlyonce::{Router, Worker, sdk};

const JOBS: &str = r#"
[job."stock.arrive"]
effect = "row"
guarantee = "transactional"
table = "TABLE"
key = { sku = "{sku}" }
add = { available = "+{quantity}" }

[job."order.reserve"]
effect = "row"
guarantee = "transactional"
table = "TABLE"
key = { sku = "{sku}" }
add = { available = "-{quantity}" }
floor = { available = 0 }

[job."sku.make"]
effect = "row"
guarantee = "transactional"
table = "TABLE"
key = { sku = "{sku}" }
values = { available = "{quantity}", shelf = "row {row}", checked = true }

[job."sku.drop"]
effect = "row"
guarantee = "transactional"
table = "TABLE"
key = { sku = "{sku}" }
values = { available = 0 }
delete = true
"#;

/// A folder of this test alone.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("rows-{:016x}", fastrand::Rng::new().u64(..));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where the rows are, looked at past the worker.
enum Rows {
    Memory(Arc<MemoryStore>),
    Sqlite(PathBuf),
    Dynamo(aws_sdk_dynamodb::Client),
    Postgres(server::Postgres),
}

struct Shop {
    worker: Worker,
    rows: Rows,
    table: String,
    _folder: Folder,
}

impl Shop {
    fn new(store: Arc<dyn Store>, rows: Rows, table: &str, folder: Folder) -> Self {
        let file = folder.0.join("jobs.toml");
        std::fs::write(&file, JOBS.replace("TABLE", table)).unwrap();
        let jobs = Router::from_jobs_file(&file).unwrap();
        let worker = Worker::builder(store).build(jobs).unwrap();
        Self { worker, rows, table: table.to_owned(), _folder: folder }
    }

    async fn run(&self, job: &str, key: &str, body: &str) -> Outcome {
        let now = self.worker.clock().now();
        let delivery = Delivery {
            job: job.to_owned(),
            key: IdempotencyKey::new(key).unwrap(),
            body: body.to_owned(),
            message_id: None,
            enqueued_at: Some(now),
            unique: None,
        };
        self.worker.handle(delivery, Deadline::new(now, now + Duration::from_secs(30))).await
    }

    /// What a job that failed for good says.
    async fn refused(&self, job: &str, key: &str, body: &str) -> String {
        let outcome = self.run(job, key, body).await;
        assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
        outcome.error.unwrap()
    }

    /// A sku's columns; `None` if there is no row.
    async fn row(&self, sku: &str) -> Option<(i64, Option<String>)> {
        match &self.rows {
            Rows::Memory(store) => {
                let key = Columns::from([("sku".to_owned(), RowValue::from(sku))]);
                let row = store.row(&self.table, &key)?;
                let Some(RowValue::Integer(available)) = row.get("available") else {
                    panic!("{row:?}")
                };
                let shelf = row.get("shelf").map(|shelf| match shelf {
                    RowValue::Text(text) => text.clone(),
                    other => panic!("{other:?}"),
                });
                Some((*available, shelf))
            }
            Rows::Sqlite(file) => {
                let open = rusqlite::Connection::open(file).unwrap();
                let sql = format!("SELECT available, shelf FROM \"{}\" WHERE sku = ?1", self.table);
                let mut statement = open.prepare(&sql).unwrap();
                let mut rows = statement.query([sku]).unwrap();
                let row = rows.next().unwrap()?;
                Some((row.get(0).unwrap(), row.get(1).unwrap()))
            }
            Rows::Postgres(server) => {
                let sql = format!("SELECT available, shelf FROM {} WHERE sku = $1", self.table);
                let row = server.foreign().await.query_opt(&sql, &[&sku]).await.unwrap()?;
                Some((row.get(0), row.get(1)))
            }
            Rows::Dynamo(client) => {
                let key = AttributeValue::S(sku.to_owned());
                let got = client.get_item().table_name(&self.table).key("sku", key).send().await;
                let row = got.unwrap().item.filter(|row| !row.is_empty())?;
                let available = row.get("available").unwrap().as_n().unwrap().parse().unwrap();
                let shelf = row.get("shelf").map(|shelf| shelf.as_s().unwrap().clone());
                Some((available, shelf))
            }
        }
    }

    /// Each kind of write happens once, and what must not happen does not.
    async fn keeps_its_books(&self) {
        let completed = |outcome: &Outcome| matches!(outcome.ending, Ending::Completed(_));
        let five = r#"{"sku":"cup","quantity":5}"#;
        assert!(completed(&self.run("stock.arrive", "delivery:1", five).await));
        assert_eq!(self.row("cup").await, Some((5, None)));

        let three = r#"{"sku":"cup","quantity":3}"#;
        assert!(completed(&self.run("order.reserve", "order:1", three).await));
        assert_eq!(self.row("cup").await, Some((2, None)));
        let again = self.run("order.reserve", "order:1", three).await;
        assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
        assert_eq!(self.row("cup").await, Some((2, None)));

        // Below the floor; and where there is no row, below it from 0.
        let sold_out = "it would bring \"available\" below 0";
        assert_eq!(self.refused("order.reserve", "order:2", three).await, sold_out);
        let pot = r#"{"sku":"pot","quantity":1}"#;
        assert_eq!(self.refused("order.reserve", "order:3", pot).await, sold_out);
        // What would take away what arrives, or add what is sold.
        for (n, job) in ["stock.arrive", "order.reserve"].into_iter().enumerate() {
            let key = format!("turned:{n}");
            let why = self.refused(job, &key, r#"{"sku":"cup","quantity":-4242}"#).await;
            assert!(why.contains("\"quantity\"") && !why.contains("4242"), "{why}");
        }
        assert_eq!(self.row("cup").await, Some((2, None)));
        assert_eq!(self.row("pot").await, None);

        let make = r#"{"sku":"lid","quantity":0,"row":7}"#;
        assert!(completed(&self.run("sku.make", "make:1", make).await));
        assert_eq!(self.row("lid").await, Some((0, Some("row 7".to_owned()))));
        let lid = r#"{"sku":"lid","quantity":9,"row":9}"#;
        assert!(self.refused("sku.make", "make:2", lid).await.contains("a row with this key"));
        assert_eq!(self.row("lid").await, Some((0, Some("row 7".to_owned()))));

        let why = self.refused("sku.drop", "drop:1", r#"{"sku":"cup"}"#).await;
        assert!(why.contains("shows what it must"), "{why}");
        assert!(self.row("cup").await.is_some());
        assert!(completed(&self.run("sku.drop", "drop:2", r#"{"sku":"lid"}"#).await));
        assert_eq!(self.row("lid").await, None);
        self.refused("sku.drop", "drop:3", r#"{"sku":"lid"}"#).await;
    }
}

#[tokio::test]
async fn rows_change_once_in_memory() {
    let store = Arc::new(MemoryStore::new());
    let shop = Shop::new(store.clone(), Rows::Memory(store), "stock", Folder::new());
    shop.keeps_its_books().await;
}

#[tokio::test]
async fn rows_change_once_in_sqlite() {
    let folder = Folder::new();
    let file = folder.0.join("shop.db");
    let store = Arc::new(SqliteStore::open(&file).await.unwrap());
    let open = rusqlite::Connection::open(&file).unwrap();
    let columns = "sku TEXT PRIMARY KEY, available INTEGER, shelf TEXT, checked INTEGER";
    open.execute(&format!("CREATE TABLE stock ({columns})"), []).unwrap();
    drop(open);
    let shop = Shop::new(store, Rows::Sqlite(file), "stock", folder);
    shop.keeps_its_books().await;
}

#[tokio::test]
async fn rows_change_once_in_postgres() {
    let server = server::Postgres::start();
    PostgresStore::create(&server.url()).await.unwrap();
    let store = Arc::new(PostgresStore::open_existing(&server.url()).await.unwrap());
    let columns = "sku TEXT PRIMARY KEY, available BIGINT, shelf TEXT, checked BOOLEAN";
    let table = format!("CREATE TABLE stock ({columns})");
    server.foreign().await.batch_execute(&table).await.unwrap();
    let shop = Shop::new(store, Rows::Postgres(server), "stock", Folder::new());
    shop.keeps_its_books().await;
}

#[tokio::test]
async fn a_table_that_is_not_there_is_named() {
    let folder = Folder::new();
    let file = folder.0.join("shop.db");
    let store = Arc::new(SqliteStore::open(&file).await.unwrap());
    let shop = Shop::new(store, Rows::Sqlite(file), "stock", folder);
    let why = shop.refused("stock.arrive", "delivery:1", r#"{"sku":"cup","quantity":5}"#).await;
    assert!(why.contains("no such table: stock"), "{why}");
}

#[tokio::test]
async fn rows_change_once_in_dynamodb() {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local DynamoDB and sets it"
    );
    let sdk = sdk::load().await;
    let client = aws_sdk_dynamodb::Client::new(&sdk);
    let random = fastrand::Rng::new().u64(..);
    let (records, stock) = (format!("records-{random:016x}"), format!("stock-{random:016x}"));
    let store = DynamoStore::new(&sdk, records);
    assert!(store.create_table(&SystemClock).await.unwrap());
    let sku = AttributeDefinition::builder()
        .attribute_name("sku")
        .attribute_type(ScalarAttributeType::S)
        .build()
        .unwrap();
    let key = KeySchemaElement::builder().attribute_name("sku").key_type(KeyType::Hash);
    client
        .create_table()
        .table_name(&stock)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(sku)
        .key_schema(key.build().unwrap())
        .send()
        .await
        .unwrap();
    let shop = Shop::new(Arc::new(store), Rows::Dynamo(client), &stock, Folder::new());
    shop.keeps_its_books().await;
}

/// Redis has rows of no kind; opening it connects nowhere.
#[cfg(feature = "redis")]
#[test]
fn a_store_without_rows_stops_the_worker_at_its_start() {
    let folder = Folder::new();
    let file = folder.0.join("jobs.toml");
    std::fs::write(&file, JOBS).unwrap();
    let store = onlyonce::store::RedisStore::open("redis://127.0.0.1:1").unwrap();
    let jobs = Router::from_jobs_file(&file).unwrap();
    let error = Worker::builder(store).build(jobs).unwrap_err().to_string();
    assert!(error.contains("writes a row") && error.contains("Postgres"), "{error}");
}
