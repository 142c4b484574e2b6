//! The outbox in the file.

use async_trait::async_trait;
use rusqlite::{Connection, Statement};

use super::SqliteStore;
use super::bind::{Unfit, bind};
use super::fault::fault;
use crate::error::{Error, ErrorKind};
use crate::protocol::{OutboxEntry, Timestamp};
use crate::store::outbox::{Outbox, Take, Taken};
use crate::store::sql::Drafted;
use crate::store::sql::outbox::{add_unique, clear, columns, put_back, sent, take, unsent};

fn unfit(error: Unfit) -> Error {
    match error {
        Unfit::Sqlite(error) => fault("outbox", error),
        Unfit::Parameters(why) => Error::new(ErrorKind::StoreRefused, "outbox").with_detail(why),
    }
}

fn prepared<'a>(
    connection: &'a Connection,
    (sql, values): &Drafted,
) -> Result<Statement<'a>, Error> {
    let mut statement = connection.prepare(sql).map_err(|error| fault("outbox", error))?;
    bind(&mut statement, values).map_err(unfit)?;
    Ok(statement)
}

/// How many rows it changes.
fn execute(connection: &Connection, sql: &Drafted) -> Result<usize, Error> {
    let mut statement = prepared(connection, sql)?;
    statement.raw_execute().map_err(|error| fault("outbox", error))
}

fn is_any(connection: &Connection, sql: &Drafted) -> Result<bool, Error> {
    let mut statement = prepared(connection, sql)?;
    let row = statement.raw_query().next().map(|row| row.is_some());
    row.map_err(|error| fault("outbox", error))
}

fn entries(connection: &Connection, sql: &Drafted) -> Result<Vec<OutboxEntry>, Error> {
    let mut statement = prepared(connection, sql)?;
    let mut rows = statement.raw_query();
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(|error| fault("outbox", error))? {
        let columns = columns(|name| row.get(name), |name| row.get(name));
        entries.extend(OutboxEntry::of_row(columns.map_err(|error| fault("outbox", error))));
    }
    Ok(entries)
}

impl SqliteStore {
    async fn changed(&self, sql: Drafted) -> Result<usize, Error> {
        self.with("outbox", move |connection| execute(connection, &sql)).await
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn take(&self, asked: Take) -> Result<Taken, Error> {
        let sql = take(&asked, "");
        let entries = self.with("outbox", move |connection| entries(connection, &sql)).await?;
        Ok(Taken { entries, next: None })
    }

    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.changed(sent(entry, at)).await.map(drop)
    }

    async fn put_back(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.changed(put_back(entry, at)).await.map(drop)
    }

    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error> {
        let sql = unsent(entry);
        self.with("outbox", move |connection| is_any(connection, &sql)).await
    }

    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error> {
        self.changed(clear(row, nonce)).await.map(drop)
    }

    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error> {
        Ok(self.changed(add_unique(entry, now)).await? == 1)
    }
}
