//! Staged writes in the completing transaction.

use rusqlite::Transaction;

use super::bind::{Unfit, bind};
use super::fault::{is_condition, kind};
use super::in_transaction::{CLOSURE, InTransaction};
use crate::error::{BoxError, Error, ErrorKind};
use crate::store::StagedWrite;
use crate::store::outbox::OUTBOX;
use crate::store::sql::{Abort, Dialect, Drafted, NATIVE, SqlStatement, row_sql};

const SQLITE: Dialect = Dialect { is_shared: false, is_loosely_typed: true };

/// A staged write as SQL: statements that between them must change so many rows.
pub(super) struct Steps {
    form: &'static str,
    work: Work,
}

enum Work {
    /// They run until one has changed something.
    Sql {
        statements: Vec<Drafted>,
        expect: Option<u64>,
    },
    Closure(InTransaction),
}

impl Steps {
    /// The staged write as SQL, or why it cannot be one.
    pub fn of(staged: &StagedWrite) -> Result<Self, Error> {
        let form = staged.form();
        let work = match staged {
            StagedWrite::Row(row) => {
                Work::Sql { statements: row_sql(row, SQLITE)?, expect: Some(1) }
            }
            StagedWrite::Native { value, .. } => {
                if let Some(statement) = value.downcast_ref::<SqlStatement>() {
                    let SqlStatement { sql, params, expect_changes } = statement.clone();
                    Work::Sql { statements: vec![(sql, params)], expect: expect_changes }
                } else if let Some(closure) = value.downcast_ref::<InTransaction>() {
                    Work::Closure(closure.clone())
                } else {
                    return Err(refuse(format!(
                        "SQLite takes RowWrite, {NATIVE} or {CLOSURE}, not {form}"
                    )));
                }
            }
        };
        Ok(Self { form, work })
    }

    /// Runs the statements in the transaction `open`. False if a condition did not hold; some of
    /// them may have run then, so the transaction must not be committed.
    pub fn run(&self, open: &Transaction<'_>) -> Result<bool, Error> {
        match &self.work {
            Work::Sql { statements, expect } => self.execute(open, statements, *expect),
            Work::Closure(work) => {
                match work.run(open) {
                    Err(Abort::Refused) => Ok(false),
                    Err(Abort::Failed(error)) => self.failed(error),
                    // Past recall, but not to be told as done.
                    Ok(()) if open.is_autocommit() => {
                        Err(refuse(format!("{}: it ended the transaction itself", self.form)))
                    }
                    Ok(()) => Ok(true),
                }
            }
        }
    }

    fn failed(&self, error: BoxError) -> Result<bool, Error> {
        match error.downcast::<rusqlite::Error>() {
            Ok(error) => self.stopped(*error),
            Err(error) => Err(Error::new(ErrorKind::Staged, "stage")
                .with_detail(self.form)
                .with_source(error)),
        }
    }

    fn execute(
        &self,
        open: &Transaction<'_>,
        statements: &[Drafted],
        expect: Option<u64>,
    ) -> Result<bool, Error> {
        let mut changed = 0;
        for (sql, values) in statements {
            let mut statement = open.prepare(sql).map_err(|error| self.fault(error))?;
            // COMMIT and ROLLBACK count as reading: they would end the transaction half-way.
            if statement.readonly() {
                return Err(refuse(format!("{}: a statement that writes nothing", self.form)));
            }
            bind(&mut statement, values).map_err(|unfit| match unfit {
                Unfit::Parameters(why) => refuse(format!("{}: {why}", self.form)),
                Unfit::Sqlite(error) => self.fault(error),
            })?;
            match statement.raw_execute() {
                Ok(rows) => changed += u64::try_from(rows).unwrap_or(u64::MAX),
                Err(error) => return self.stopped(error),
            }
            if changed > 0 {
                break;
            }
        }
        Ok(expect.is_none_or(|expected| expected == changed))
    }

    /// A condition that does not hold, or an error.
    fn stopped(&self, error: rusqlite::Error) -> Result<bool, Error> {
        if !is_condition(&error) {
            return Err(self.fault(error));
        }
        // The answer says which write; this says which constraint. Its text may quote a payload,
        // if a trigger raised it.
        tracing::debug!(%error, "a staged write was refused");
        Ok(false)
    }

    /// What may pass is tried again; all else is this write's own fault.
    fn fault(&self, error: rusqlite::Error) -> Error {
        let kind = match kind(&error) {
            ErrorKind::StoreUnavailable => ErrorKind::StoreUnavailable,
            _ => ErrorKind::Staged,
        };
        let detail = match error.to_string().contains(&format!("no such table: {OUTBOX}")) {
            true => format!("{}: make the outbox with `onlyonce setup`", self.form),
            false => self.form.to_owned(),
        };
        Error::new(kind, "stage").with_detail(detail).with_source(error)
    }
}

fn refuse(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Staged, "stage").with_detail(detail)
}
