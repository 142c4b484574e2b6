//! Postgres' errors as ours: what may pass by itself, what will not, and what is a condition.

use std::error::Error as StdError;
use std::fmt;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::{Error, ErrorKind};

/// The longest text of the server's that is passed on.
const LONGEST: usize = 200;

/// Postgres' error as ours.
pub(super) fn fault(operation: &'static str, error: tokio_postgres::Error) -> Error {
    let fault = Error::new(kind(&error), operation);
    match error.as_db_error() {
        Some(said) => fault.with_source(Said::of(said)),
        None => fault.with_source(error),
    }
}

/// A server that is down, full or failing over, and a connection that broke: it may pass, and what
/// was sent may have landed. Where another transaction was in the way, nothing has. All else stays
/// wrong until somebody does something.
pub(super) fn kind(error: &tokio_postgres::Error) -> ErrorKind {
    let Some(said) = error.as_db_error() else {
        return match is_wrong_for_good(error) {
            true => ErrorKind::StoreRefused,
            false => ErrorKind::StoreUnavailable,
        };
    };
    let code = said.code();
    let contended = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // Longer than a lock is waited for.
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    // A server that became a standby, and a transaction that was held too long.
    let passing =
        [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT];
    if contended.contains(code) {
        ErrorKind::StoreContended
    } else if passing.contains(code)
        || ["08", "53", "57", "58"].iter().any(|class| code.code().starts_with(class))
    {
        ErrorKind::StoreUnavailable
    } else {
        ErrorKind::StoreRefused
    }
}

/// A server without TLS, or with a certificate that is not trusted; a password that it asks for and
/// that there is none of: it is so the next time, too.
fn is_wrong_for_good(error: &tokio_postgres::Error) -> bool {
    let is_certificate = |error: &(dyn StdError + 'static)| {
        let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let said = match inner {
            Some(inner) => inner.downcast_ref::<rustls::Error>(),
            None => error.downcast_ref::<rustls::Error>(),
        };
        matches!(said, Some(rustls::Error::InvalidCertificate(_)))
    };
    let Some(source) = error.source() else {
        return false;
    };
    // The library has no other name for these.
    is_certificate(source)
        || source.to_string() == "server does not support TLS"
        || error.to_string() == "invalid configuration"
}

/// A constraint that says no to these values at this moment, or a trigger that raises. A column
/// left out or of the wrong type is no such thing: it is a fault in the statement.
pub(super) fn is_condition(error: &tokio_postgres::Error) -> bool {
    let conditions = [
        SqlState::UNIQUE_VIOLATION,
        SqlState::CHECK_VIOLATION,
        SqlState::FOREIGN_KEY_VIOLATION,
        SqlState::RESTRICT_VIOLATION,
        SqlState::EXCLUSION_VIOLATION,
        SqlState::WITH_CHECK_OPTION_VIOLATION,
        SqlState::RAISE_EXCEPTION,
    ];
    error.code().is_some_and(|code| conditions.contains(code))
}

/// What the server said, without what may quote a payload: its details, and the texts about values
/// and of triggers.
#[derive(Debug)]
pub(super) struct Said(String);

impl Said {
    pub fn of(error: &DbError) -> Self {
        let code = error.code().code();
        let quotes_values = ["22", "23", "44", "P0"].iter().any(|class| code.starts_with(class));
        let mut text = match quotes_values {
            true => {
                let names = [error.table(), error.column(), error.constraint()];
                let names: Vec<_> = names.into_iter().flatten().collect();
                names.join(" ")
            }
            false => error.message().chars().take(LONGEST).collect(),
        };
        if !text.is_empty() {
            text.push(' ');
        }
        Self(format!("{text}(SQLSTATE {code})"))
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Said {}
