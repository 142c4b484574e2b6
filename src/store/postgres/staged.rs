//! Staged writes in the completing transaction.

use tokio_postgres::Transaction;
use tokio_postgres::error::SqlState;

use super::fault::{Said, fault, is_condition, kind};
use super::in_transaction::{CLOSURE, InTransaction};
use super::value::typeless;
use crate::error::{BoxError, Error, ErrorKind};
use crate::store::outbox::OUTBOX;
use crate::store::sql::{Abort, Dialect, Drafted, NATIVE, SqlStatement, SqlValue, row_sql};
use crate::store::{RowWrite, StagedWrite};

const POSTGRES: Dialect = Dialect { is_shared: true, is_loosely_typed: false };

/// What a staged statement may begin with: nothing that only reads, and nothing that ends the
/// transaction. There is one statement only: the server takes no second one.
const WRITES: [&str; 9] =
    ["INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "CREATE", "ALTER", "DROP", "TRUNCATE"];

/// A staged write: what runs in the transaction, and what must come of it.
pub(super) struct Staged {
    form: &'static str,
    work: Work,
}

enum Work {
    /// They run until one has changed something.
    Sql {
        statements: Vec<Drafted>,
        expect: Option<u64>,
        adds: bool,
    },
    Closure(InTransaction),
}

impl Staged {
    /// The staged write as SQL, or why it cannot be one.
    pub fn of(staged: &StagedWrite) -> Result<Self, Error> {
        let form = staged.form();
        let work = match staged {
            StagedWrite::Row(row) => Work::Sql {
                statements: row_sql(row, POSTGRES)?,
                expect: Some(1),
                adds: matches!(row, RowWrite::Add { .. }),
            },
            StagedWrite::Native { value, .. } => {
                if let Some(statement) = value.downcast_ref::<SqlStatement>() {
                    let SqlStatement { sql, params, expect_changes } = statement.clone();
                    if !writes(&sql) {
                        return Err(refuse(format!(
                            "{form}: a statement that begins with none of {}",
                            WRITES.join(", ")
                        )));
                    }
                    let statements = vec![(sql, params)];
                    Work::Sql { statements, expect: expect_changes, adds: false }
                } else if let Some(closure) = value.downcast_ref::<InTransaction>() {
                    Work::Closure(closure.clone())
                } else {
                    return Err(refuse(format!(
                        "Postgres takes RowWrite, {NATIVE} or {CLOSURE}, not {form}"
                    )));
                }
            }
        };
        let staged = Self { form, work };
        staged.is_storable()?;
        Ok(staged)
    }

    fn is_storable(&self) -> Result<(), Error> {
        let Work::Sql { statements, .. } = &self.work else {
            return Ok(());
        };
        let has_nul =
            |value: &SqlValue| matches!(value, SqlValue::Text(text) if text.contains('\0'));
        if statements.iter().any(|(sql, values)| sql.contains('\0') || values.iter().any(has_nul)) {
            return Err(refuse(format!(
                "{}: a text with the character U+0000, which Postgres cannot store",
                self.form
            )));
        }
        Ok(())
    }

    /// Runs it in the transaction `open`. False if a condition did not hold; some of it may have
    /// run then, so the transaction must not be committed.
    pub async fn run(&self, open: &Transaction<'_>) -> Result<bool, Error> {
        match &self.work {
            Work::Sql { statements, expect, adds } => {
                let mut changed = 0;
                for (sql, values) in statements {
                    match open.execute_typed(sql, &typeless(values)).await {
                        Ok(rows) => changed += rows,
                        // A sum past what the column can hold.
                        Err(error)
                            if *adds
                                && error.code() == Some(&SqlState::NUMERIC_VALUE_OUT_OF_RANGE) =>
                        {
                            return Ok(false);
                        }
                        Err(error) => return self.stopped(error),
                    }
                    if changed > 0 {
                        break;
                    }
                }
                Ok(expect.is_none_or(|expected| expected == changed))
            }
            Work::Closure(work) => self.call(work, open).await,
        }
    }

    async fn call(&self, work: &InTransaction, open: &Transaction<'_>) -> Result<bool, Error> {
        let before = transaction_id(open).await.map_err(|error| fault("stage", error))?;
        match work.run(open).await {
            Ok(()) => {}
            Err(Abort::Refused) => return Ok(false),
            Err(Abort::Failed(error)) => return self.failed(error),
        }
        match transaction_id(open).await {
            Ok(after) if after == before => Ok(true),
            // Past recall, but not to be told as done.
            Ok(_) => Err(refuse(format!("{}: it ended the transaction itself", self.form))),
            // A commit would be answered as if it were one, and take everything back.
            Err(error) if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) => {
                Err(refuse(format!("{}: a statement of it failed, and it went on", self.form)))
            }
            Err(error) => Err(fault("stage", error)),
        }
    }

    fn failed(&self, error: BoxError) -> Result<bool, Error> {
        match error.downcast::<tokio_postgres::Error>() {
            Ok(error) => self.stopped(*error),
            Err(error) => Err(Error::new(ErrorKind::Staged, "stage")
                .with_detail(self.form)
                .with_source(error)),
        }
    }

    /// A condition that does not hold, or an error.
    fn stopped(&self, error: tokio_postgres::Error) -> Result<bool, Error> {
        if !is_condition(&error) {
            return Err(self.fault(error));
        }
        // The answer says which write; this says which constraint.
        if let Some(said) = error.as_db_error() {
            tracing::debug!(said = %Said::of(said), "a staged write was refused");
        }
        Ok(false)
    }

    /// What may pass is tried again; all else is this write's own fault.
    fn fault(&self, error: tokio_postgres::Error) -> Error {
        let Some(said) = error.as_db_error() else {
            return fault("stage", error);
        };
        let kind = match kind(&error) {
            // Too few values, or too many.
            _ if *said.code() == SqlState::PROTOCOL_VIOLATION => ErrorKind::Staged,
            ErrorKind::StoreRefused => ErrorKind::Staged,
            passing => passing,
        };
        let remedy = match *said.code() {
            SqlState::UNDEFINED_TABLE if said.message().contains(OUTBOX) => {
                ": make the outbox with `onlyonce setup`"
            }
            SqlState::INVALID_COLUMN_REFERENCE if matches!(self.form, "RowWrite") => {
                ": the key of a row must be the columns of a primary key or unique constraint"
            }
            _ => "",
        };
        let detail = format!("{}{remedy}", self.form);
        Error::new(kind, "stage").with_detail(detail).with_source(Said::of(said))
    }
}

/// Which transaction it is; none before it has written.
async fn transaction_id(open: &Transaction<'_>) -> Result<Option<i64>, tokio_postgres::Error> {
    open.query_typed_one("SELECT txid_current_if_assigned()", &[]).await?.try_get(0)
}

/// Whether the statement begins as one that writes, after spaces and comments.
fn writes(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n')
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/")
        } else {
            break;
        };
        rest = after.map_or("", |(_, after)| after.trim_start());
    }
    let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    WRITES.iter().any(|write| write.eq_ignore_ascii_case(&word))
}

fn refuse(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Staged, "stage").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_writes_is_staged() {
        for sql in
            ["insert into t values (1)", " -- why\n /* and */UPDATE t SET a = 1", "WITH a AS"]
        {
            assert!(writes(sql), "{sql}");
        }
        for sql in
            ["", "COMMIT", "/* INSERT */ ROLLBACK", "SELECT 1", "-- INSERT", "INSERTS", "DO $$"]
        {
            assert!(!writes(sql), "{sql}");
        }
    }
}
