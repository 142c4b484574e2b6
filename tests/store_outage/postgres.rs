//! Postgres, on a disk that is synced.

use std::sync::Arc;

use onlyonce::store::{Columns, PostgresStore, RowWrite, SqlStatement, StagedWrite};

use crate::bench::{Server, survives};
use crate::server::Postgres;

impl Server for Postgres {
    fn kill(&mut self) {
        Postgres::kill(self);
    }

    fn start_again(&mut self) {
        Postgres::start_again(self);
    }
}

/// Nothing in the table says that a line is there once.
const TABLES: &str = "CREATE TABLE ledger (key TEXT NOT NULL);
    CREATE TABLE totals (name TEXT PRIMARY KEY, done BIGINT NOT NULL)";

fn staging(key: &str) -> Vec<StagedWrite> {
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
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_run_in_which_postgres_is_killed_every_job_is_done_once() {
    let mut server = Postgres::durable();
    PostgresStore::create(&server.url()).await.unwrap();
    server.foreign().await.batch_execute(TABLES).await.unwrap();
    let store = Arc::new(PostgresStore::open_existing(&server.url()).await.unwrap());
    let done = survives(store, &mut server, staging).await;

    let foreign = server.foreign().await;
    let lines = foreign.query("SELECT key FROM ledger ORDER BY key", &[]).await.unwrap();
    let lines: Vec<String> = lines.iter().map(|row| row.get(0)).collect();
    let mut expected = done;
    expected.sort();
    assert_eq!(lines, expected);
    let total = "SELECT done FROM totals WHERE name = 'all'";
    assert_eq!(foreign.number(total).await, Some(lines.len() as i64));
}
