//! Opening the file, and making the tables in it.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::fault::{fault, is_busy};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::OUTBOX;

/// How long a statement waits for whoever else has the file: as long as one attempt of a call to
/// DynamoDB. The caller tries again within the attempt's time.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// What to do if there are no records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Make the file and the tables.
    Make,
    /// Say so. A worker that starts afresh in a wrong place has forgotten everything.
    Refuse,
}

/// STRICT: a column holds what it says, or the write fails. Columns that a later version adds may
/// be null or have a default. `user_version` and `application_id` are the application's.
const RECORDS: &str = "
CREATE TABLE onlyonce (
    pk TEXT NOT NULL PRIMARY KEY,
    key TEXT NOT NULL,
    job TEXT NOT NULL,
    namespace TEXT NOT NULL,
    v INTEGER NOT NULL,
    status TEXT NOT NULL,
    parked TEXT,
    claim_id TEXT NOT NULL,
    token INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    not_before INTEGER,
    fingerprint TEXT,
    unrecorded_since INTEGER,
    effects TEXT NOT NULL,
    output TEXT,
    output_omitted INTEGER,
    error TEXT,
    quarantine TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    message_id TEXT,
    expires_at INTEGER
) STRICT;
CREATE INDEX onlyonce_parked ON onlyonce (parked, updated_at, pk) WHERE parked IS NOT NULL;
";

/// What commits along with a record and is sent afterwards, in the order of `seq`.
const OUTBOX_TABLE: &str = "
CREATE TABLE onlyonce_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    order_key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    message_key TEXT,
    nonce TEXT,
    traceparent TEXT,
    created_at INTEGER NOT NULL,
    until INTEGER,
    sent_at INTEGER,
    taken_until INTEGER NOT NULL DEFAULT 0,
    UNIQUE (order_key, event_id)
) STRICT;
CREATE INDEX onlyonce_outbox_unsent ON onlyonce_outbox (seq) WHERE sent_at IS NULL;
CREATE INDEX onlyonce_outbox_heads ON onlyonce_outbox (order_key, seq) WHERE sent_at IS NULL;
";

/// The tables, each with what makes it.
const TABLES: [(&str, &str); 2] = [("onlyonce", RECORDS), (OUTBOX, OUTBOX_TABLE)];

/// A connection to the file, and whether a table was made. One that is only looked for may lack
/// the outbox: it is of an earlier version then, and works.
pub(super) fn open(path: &Path, missing: Missing) -> Result<(Connection, bool), Error> {
    let refused = |detail: &str| {
        Error::new(ErrorKind::StoreRefused, "open")
            .with_detail(format!("{}: {detail}", path.display()))
    };
    let fault = |error| fault("open", error).with_detail(path.display().to_string());
    let none = "there are no records here; make them with `onlyonce setup`, or correct the path";

    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match missing {
        Missing::Make => flags |= OpenFlags::SQLITE_OPEN_CREATE,
        Missing::Refuse if !path.exists() => return Err(refused(none)),
        Missing::Refuse => {}
    }
    let mut connection = Connection::open_with_flags(path, flags).map_err(fault)?;
    connection.busy_timeout(PATIENCE).map_err(fault)?;
    // Before anything in a foreign file is changed.
    if missing == Missing::Refuse && !has_table(&connection, "onlyonce").map_err(fault)? {
        return Err(refused(none));
    }
    configure(&connection).map_err(fault)?;
    let mode = write_ahead(&connection).map_err(fault)?;
    if mode != "wal" {
        return Err(refused(&format!(
            "its journal mode stays {mode:?}; give the path of a file on a disk of this machine"
        )));
    }
    let made = missing == Missing::Make && make_tables(&mut connection).map_err(fault)?;
    Ok((connection, made))
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // Every commit is on the disk before it is answered. With less, a power cut forgets the last
    // completions: their messages are deleted already, their effects have happened, and a copy of
    // one of them would run it again.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // On macOS a plain sync stops at the drive's cache; elsewhere this is nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    // A misspelt column would be read as a text, and its condition would hold.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    Ok(())
}

/// Switches to the write-ahead log, which lets others read while one writes. It stays with the
/// file. Answers the mode it is in now.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    // Two that switch a new file at once would wait for each other, so SQLite answers one of them
    // at once that it is busy, whatever its patience. All the waiting is done here instead.
    connection.busy_timeout(Duration::ZERO)?;
    let mut pauses = PATIENCE.as_millis() / PAUSE.as_millis();
    let mode = loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Err(error) if is_busy(&error) && pauses > 0 => pauses -= 1,
            done => break done,
        }
        std::thread::sleep(PAUSE);
    };
    connection.busy_timeout(PATIENCE)?;
    mode
}

fn has_table(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection.query_row(sql, [table], |row| row.get(0))
}

/// Makes the tables that are not there, with their indexes; false if all were.
fn make_tables(connection: &mut Connection) -> rusqlite::Result<bool> {
    let is_missing = |connection: &Connection| -> rusqlite::Result<Vec<&str>> {
        let mut missing = Vec::new();
        for (table, sql) in TABLES {
            if !has_table(connection, table)? {
                missing.push(sql);
            }
        }
        Ok(missing)
    };
    // A look first: it waits for no writer.
    if is_missing(connection)?.is_empty() {
        return Ok(false);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let missing = is_missing(&transaction)?;
    for sql in &missing {
        transaction.execute_batch(sql)?;
    }
    transaction.commit()?;
    Ok(!missing.is_empty())
}
