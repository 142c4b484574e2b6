//! Records in one SQLite file: no server, one transaction a step.

mod bind;
mod decode;
mod fault;
mod file;
mod in_transaction;
mod outbox;
mod records;
mod rows;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::Mutex;

use self::fault::{fault, is_condition};
use self::file::Missing;
use self::rows::Steps;
use super::outbox::OUTBOX;
use super::sql::NATIVE;
use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};
use crate::runtime::{Ended, blocking};

pub use in_transaction::InTransaction;

/// Records in the table `onlyonce` of one SQLite file, which holds the outbox `onlyonce_outbox`
/// beside it and may hold the application's own tables, too.
///
/// A commit is one transaction: the record and all that is staged along with it, be it
/// [`RowWrite`](super::RowWrite)s, [`SqlStatement`](super::SqlStatement)s or a closure
/// ([`InTransaction`]), are on the disk before it is answered, or none of them is there. So a job
/// whose effects are rows of the same file does them exactly once. Any number of processes of one
/// machine may share the file; a write waits two seconds at most for another's.
///
/// What it needs: a disk of this machine (the write-ahead log does not work over a network), and
/// that nobody else writes the file with `synchronous = OFF`. What it does not do: nothing removes
/// a record past its `expires_at` (whole epoch seconds); that is up to you:
/// `DELETE FROM onlyonce WHERE expires_at < unixepoch()`.
///
/// Rows live in tables that you make. The key of a `RowWrite` must name one row at most: a write
/// that would change more is refused, as one whose condition does not hold.
#[derive(Clone)]
pub struct SqliteStore {
    path: PathBuf,
    /// One connection: SQLite takes one writer at a time anyway. Waiting for it is asynchronous
    /// and in order, so a commit that is called off while it waits was never sent.
    connection: Arc<Mutex<Connection>>,
}

impl SqliteStore {
    /// The records in the file at `path`. Makes the file and the tables if they are not there.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::opened(path.as_ref(), Missing::Make).await.map(|(store, _)| store)
    }

    /// The records in the file at `path`, which must be there: a worker that starts afresh in a
    /// wrong place has forgotten what is done.
    pub async fn open_existing(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::opened(path.as_ref(), Missing::Refuse).await.map(|(store, _)| store)
    }

    /// Makes the file and the tables, or of these what an earlier version did not know. Answers
    /// false if all was there already; it is then left as it is.
    pub async fn create(path: impl AsRef<Path>) -> Result<bool, Error> {
        Self::opened(path.as_ref(), Missing::Make).await.map(|(_, made)| made)
    }

    async fn opened(path: &Path, missing: Missing) -> Result<(Self, bool), Error> {
        let path = path.to_owned();
        let opened = {
            let path = path.clone();
            blocking(move || file::open(&path, missing)).join().await
        };
        let (connection, made) = opened.map_err(|ended| no_answer("open", ended))??;
        Ok((Self { path, connection: Arc::new(Mutex::new(connection)) }, made))
    }

    /// Runs statements that make the application's own tables.
    #[cfg(feature = "cli")]
    pub(crate) async fn run_sql(&self, sql: String) -> Result<(), Error> {
        self.with("sql", move |connection| {
            connection.execute_batch(&sql).map_err(|error| fault("sql", error))
        })
        .await
    }

    /// Does `work` on the connection, on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut connection = Arc::clone(&self.connection).lock_owned().await;
        let done = blocking(move || work(&mut connection)).join().await;
        done.map_err(|ended| no_answer(operation, ended))?
    }
}

/// The thread ended without a word: what it did before is not known.
fn no_answer(operation: &'static str, ended: Ended) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation).with_detail(match ended {
        Ended::Panicked(message) => message,
        Ended::Stopped => "the program is ending".to_owned(),
    })
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        let wanted = id.clone();
        let loaded = self.with("load", move |connection| records::load(connection, &wanted));
        loaded.await.map_err(|error| error.with_id(id))
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let with_id = |error: Error| error.with_id(&write.id);
        let staged: Result<Vec<_>, _> = staged.iter().map(Steps::of).collect();
        let staged = staged.map_err(with_id)?;
        let write_once = write.clone();
        let committed =
            self.with("commit", move |connection| commit(connection, &write_once, &staged));
        committed.await.map_err(with_id)
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        self.with("scan", move |connection| {
            records::scan(connection, parked, after.as_ref(), limit)
        })
        .await
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        let walk = move |connection: &mut Connection| records::walk(connection, after, limit);
        self.with("walk", walk).await
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        Steps::of(staged).map(drop)
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
/// writes would fail as well, and mean nothing.
fn commit(
    connection: &mut Connection,
    write: &ConditionalWrite,
    staged: &[Steps],
) -> Result<Commit, Error> {
    // Immediate: nobody writes between the look at the record and the end, and the one wait for
    // others comes before anything is done.
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| fault("begin", error))?;
    if !records::write(&transaction, write)? {
        let current = records::load(&transaction, &write.id)?;
        return Ok(Commit::Conflict(current.map(Box::new)));
    }
    for (index, steps) in staged.iter().enumerate() {
        // Leaving without a commit takes everything back, the record included.
        if !steps.run(&transaction)? {
            return Ok(Commit::Refused { index });
        }
    }
    match transaction.commit() {
        Ok(()) => Ok(Commit::Applied),
        // A constraint that is checked at the end.
        Err(error) if is_condition(&error) => {
            Ok(Commit::Refused { index: staged.len().saturating_sub(1) })
        }
        Err(error) => Err(fault("commit", error)),
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqliteStore({})", self.path.display())
    }
}
