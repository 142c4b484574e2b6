//! Where records live: a compare-and-set with, on some stores, rows that commit along with it.
#![cfg_attr(any(feature = "sqlite", feature = "postgres"), doc = include_str!("../docs/stores.md"))]

#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod effects;
#[cfg(any(feature = "dynamodb", feature = "test-util", test))]
mod gather;
mod memory;
mod outbox;
mod overlay;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod staged;

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Error;
use crate::protocol::{ConditionalWrite, Record, RecordId, Status, Timestamp};

#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoStore;
#[cfg(any(feature = "test-util", test))]
pub(crate) use gather::{Gather, Requests, Told};
pub use memory::MemoryStore;
pub use outbox::{Outbox, Place, Take, Taken};
pub(crate) use outbox::{UNIQUE, clear_unique, column};
pub use overlay::Overlay;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::{SqlStatement, SqlValue};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use staged::{Columns, RowValue, RowWrite, StagedWrite};

/// Keeps records.
///
/// The guarantee every store gives: of any number of writes with the same condition at most one
/// lands, together with all its staged writes or with none, and `Ok` is answered only for what is
/// certain. An `Err` says nothing about whether the write landed; it is never "not there yet".
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The record as it is now, by a consistent read. For people and for tests: the protocol
    /// itself needs no read.
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error>;

    /// Applies `write` and all of `staged`, or nothing.
    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error>;

    /// Records in the parked status `parked`, oldest first; up to `limit` from `after`. May lag
    /// behind writes: decide nothing from it.
    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error>;

    /// Every record, in no order: about `limit` of them, going on where an earlier part ended. Reads
    /// all there is, for people who ask for it. What is written meanwhile may be missed, or come
    /// twice.
    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error>;

    /// Refuses a staged write that this store cannot commit, naming what would fit.
    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error>;

    /// What can commit along with a record here.
    fn capabilities(&self) -> Capabilities;

    /// Its outbox, if it has one.
    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>>;
}

/// A store that others look at, too.
#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        self.as_ref().load(id).await
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        self.as_ref().commit(write, staged).await
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.as_ref().scan(parked, after, limit).await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        self.as_ref().walk(after, limit).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        self.as_ref().accepts(staged)
    }

    fn capabilities(&self) -> Capabilities {
        self.as_ref().capabilities()
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        self.as_ref().clone().outbox()
    }
}

/// What can commit along with a record in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it takes [`RowWrite`]s.
    pub rows: bool,
    /// The forms of its own that it takes, as [`StagedWrite::form`] calls them.
    pub native: &'static [&'static str],
    /// The table of its outbox, if rows can be staged there.
    pub outbox: Option<String>,
}

/// What became of a commit, for certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It landed.
    Applied,
    /// The record's condition did not hold. The record as it is, if there is one.
    Conflict(Option<Box<Record>>),
    /// The record's condition held, but that of the staged write at this index did not.
    Refused {
        /// Position in the list of staged writes.
        index: usize,
    },
}

/// Where a scan goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the last record shown was written.
    pub updated_at: Timestamp,
    /// The last record shown.
    pub id: RecordId,
}

/// A part of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The records, oldest write first.
    pub records: Vec<Record>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// These records, and whether there are more behind the last.
    pub(crate) fn of(records: Vec<Record>, is_more: bool) -> Self {
        let last = records.last().filter(|_| is_more);
        let next = last.map(|last| Cursor { updated_at: last.updated_at, id: last.id.clone() });
        Self { records, next }
    }
}

/// A part of all records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// The records; there may be none, and more later.
    pub records: Vec<Record>,
    /// Where to go on, in the store's own words; `None` at the end.
    pub next: Option<String>,
}

impl Walk {
    /// These records by id, and whether there are more behind the last.
    pub(crate) fn of(records: Vec<Record>, is_more: bool) -> Self {
        let next = records.last().filter(|_| is_more).map(|last| last.id.to_string());
        Self { records, next }
    }
}
