//! Records in Postgres, next to the business rows.

mod address;
mod fault;
mod in_transaction;
mod outbox;
mod pool;
mod records;
mod schema;
mod staged;
mod tls;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::Pool;
use tokio::time::timeout;
use tokio_postgres::{Client, IsolationLevel};

use self::address::Address;
use self::fault::{fault, is_condition};
use self::pool::{Lent, unavailable};
use self::staged::Staged;
use super::outbox::OUTBOX;
use super::sql::NATIVE;
use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::Error;
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};

pub use in_transaction::InTransaction;

/// How long one call may take in all, where the server keeps silent.
const CALL: Duration = Duration::from_secs(8);

#[doc = include_str!("guarantees.md")]
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    place: String,
}

impl PostgresStore {
    /// The records in the database that `url` names, which must have the tables: a worker that
    /// starts afresh in a wrong place has forgotten what is done.
    pub async fn open_existing(url: &str) -> Result<Self, Error> {
        let store = Self::at(url)?;
        let mut lent = store.lend("open").await?;
        let client = lent.client()?;
        store.bounded("open", schema::look(client)).await?;
        lent.give_back();
        Ok(store)
    }

    /// Makes the tables in the database that `url` names, or of these what an earlier version did
    /// not know. Answers false if all was there already. Many may do so at once.
    pub async fn create(url: &str) -> Result<bool, Error> {
        let store = Self::at(url)?;
        let mut lent = store.lend("setup").await?;
        let client = lent.client()?;
        let made = store.bounded("setup", schema::make(client)).await?;
        lent.give_back();
        Ok(made)
    }

    fn at(url: &str) -> Result<Self, Error> {
        let address = Address::read(url)?;
        Ok(Self { pool: pool::pool(&address)?, place: address.place() })
    }

    async fn lend(&self, operation: &'static str) -> Result<Lent, Error> {
        Lent::from(&self.pool, operation, &self.place).await
    }

    async fn bounded<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(CALL, Box::pin(work)).await {
            Ok(done) => done,
            Err(_) => Err(unavailable(operation).with_detail(format!(
                "{}: no answer within {} s",
                self.place,
                CALL.as_secs()
            ))),
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        let with_id = |error: Error| error.with_id(id);
        let mut lent = self.lend("load").await.map_err(with_id)?;
        let client = lent.client()?;
        let found = self.bounded("load", records::load(client, id)).await;
        lent.after(found.map_err(with_id))
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let with_id = |error: Error| error.with_id(&write.id);
        let staged: Result<Vec<_>, _> = staged.iter().map(Staged::of).collect();
        let staged = staged.map_err(with_id)?;
        let mut lent = self.lend("commit").await.map_err(with_id)?;
        let client = lent.client()?;
        let done = match staged.as_slice() {
            // One statement, which is a transaction by itself.
            [] => self.bounded("commit", records::write(client, write)).await,
            staged => self.bounded("commit", together(client, write, staged)).await,
        };
        lent.after(done.map_err(with_id))
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let mut lent = self.lend("scan").await?;
        let client = lent.client()?;
        let page = records::scan(client, parked, after.as_ref(), limit);
        let page = self.bounded("scan", page).await;
        lent.after(page)
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        let mut lent = self.lend("walk").await?;
        let client = lent.client()?;
        let part = self.bounded("walk", records::walk(client, after.as_deref(), limit)).await;
        lent.after(part)
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        Staged::of(staged).map(drop)
    }

    fn capabilities(&self) -> Capabilities {
        let native = &[NATIVE, in_transaction::CLOSURE];
        Capabilities { rows: true, native, outbox: Some(OUTBOX.to_owned()) }
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        Some(self)
    }
}

/// The record and everything staged in one transaction, the record first: a duplicate's staged
/// writes would fail as well, and mean nothing; and while it is written, no other write of it is.
/// Read committed: a statement that has waited for another transaction sees what that has done.
async fn together(
    client: &mut Client,
    write: &ConditionalWrite,
    staged: &[Staged],
) -> Result<Commit, Error> {
    let level = IsolationLevel::ReadCommitted;
    let begun = client.build_transaction().isolation_level(level).start().await;
    let transaction = begun.map_err(|error| fault("begin", error))?;
    let mut outcome = records::write(transaction.client(), write).await?;
    if outcome == Commit::Applied {
        for (index, staged) in staged.iter().enumerate() {
            if !staged.run(&transaction).await? {
                outcome = Commit::Refused { index };
                break;
            }
        }
    }
    if outcome != Commit::Applied {
        transaction.rollback().await.map_err(|error| fault("roll back", error))?;
        return Ok(outcome);
    }
    match transaction.commit().await {
        Ok(()) => Ok(Commit::Applied),
        // A constraint that is checked at the end.
        Err(error) if is_condition(&error) => {
            Ok(Commit::Refused { index: staged.len().saturating_sub(1) })
        }
        Err(error) => Err(fault("commit", error)),
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.place)
    }
}
