//! The outbox beside the records.

use async_trait::async_trait;
use tokio_postgres::{Client, Row};

use super::PostgresStore;
use super::fault::fault;
use super::value::typeless;
use crate::error::Error;
use crate::protocol::{OutboxEntry, Timestamp};
use crate::store::outbox::{Outbox, Take, Taken};
use crate::store::sql::Drafted;
use crate::store::sql::outbox::{add_unique, clear, columns, put_back, sent, take, unsent};

/// Two relays that look at once do not wait for each other.
const LOCKING: &str = "FOR UPDATE SKIP LOCKED";

async fn rows(client: &Client, (sql, values): &Drafted) -> Result<Vec<Row>, Error> {
    let rows = client.query_typed(sql, &typeless(values)).await;
    rows.map_err(|error| fault("outbox", error))
}

fn entry(row: &Row) -> Option<OutboxEntry> {
    let columns = columns(|name| row.try_get(name), |name| row.try_get(name));
    OutboxEntry::of_row(columns.map_err(|error| fault("outbox", error)))
}

impl PostgresStore {
    async fn answered(&self, sql: Drafted) -> Result<Vec<Row>, Error> {
        let mut lent = self.lend("outbox").await?;
        let client = lent.client()?;
        let rows = self.bounded("outbox", rows(client, &sql)).await?;
        lent.give_back();
        Ok(rows)
    }
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn take(&self, asked: Take) -> Result<Taken, Error> {
        let rows = self.answered(take(&asked, LOCKING)).await?;
        let entries = rows.iter().filter_map(entry).collect();
        Ok(Taken { entries, next: None })
    }

    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.answered(sent(entry, at)).await.map(drop)
    }

    async fn put_back(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        self.answered(put_back(entry, at)).await.map(drop)
    }

    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error> {
        Ok(!self.answered(unsent(entry)).await?.is_empty())
    }

    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error> {
        self.answered(clear(row, nonce)).await.map(drop)
    }

    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error> {
        let (sql, values) = add_unique(entry, now);
        // The row that it has changed, if it has.
        Ok(!self.answered((format!("{sql} RETURNING seq"), values)).await?.is_empty())
    }
}
