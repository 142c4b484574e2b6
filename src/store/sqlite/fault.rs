//! SQLite's errors as ours: what may pass by itself, what will not, and what is a condition.

use rusqlite::{ErrorCode, ffi};

use crate::error::{Error, ErrorKind};

/// SQLite's error as ours.
pub(super) fn fault(operation: &'static str, error: rusqlite::Error) -> Error {
    Error::new(kind(&error), operation).with_source(error)
}

/// A busy file, a full or failing disk: it may pass, and what was sent may have landed. All else
/// stays wrong until somebody does something.
pub(super) fn kind(error: &rusqlite::Error) -> ErrorKind {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => ErrorKind::StoreUnavailable,
        _ => ErrorKind::StoreRefused,
    }
}

/// Somebody else has the file.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// A constraint that says no to these values at this moment. A column left out or of the wrong
/// type is no such thing: it is a fault in the statement.
pub(super) fn is_condition(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error().map(|error| error.extended_code),
        Some(
            ffi::SQLITE_CONSTRAINT_CHECK
                | ffi::SQLITE_CONSTRAINT_FOREIGNKEY
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID
                | ffi::SQLITE_CONSTRAINT_TRIGGER
                | ffi::SQLITE_CONSTRAINT_UNIQUE
        )
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, TransactionBehavior};

    use super::*;

    #[test]
    fn a_full_disk_may_pass_and_leaves_no_transaction_open() {
        let mut connection = Connection::open_in_memory().unwrap();
        // What SQLite says of a full disk it says of a file at its greatest size, too.
        connection.execute_batch("CREATE TABLE t (x); PRAGMA max_page_count = 2").unwrap();
        for _ in 0..2 {
            let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let full = begun.unwrap().execute("INSERT INTO t VALUES (zeroblob(99999))", []);
            assert_eq!(kind(&full.unwrap_err()), ErrorKind::StoreUnavailable);
        }
    }

    #[test]
    fn what_stays_wrong_is_refused() {
        let connection = Connection::open_in_memory().unwrap();
        let missing = connection.execute("DELETE FROM nowhere", []).unwrap_err();
        assert_eq!(kind(&missing), ErrorKind::StoreRefused);
        assert!(!is_condition(&missing));
    }
}
