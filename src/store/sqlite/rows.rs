//! Staged writes as SQL.

use std::collections::BTreeMap;

use rusqlite::{Connection, params_from_iter};

use super::fault::{is_condition, kind};
use super::statement::{NATIVE, SqlStatement, SqlValue};
use crate::error::{Error, ErrorKind};
use crate::store::{Columns, RowWrite, StagedWrite};

/// A staged write as SQL: statements that between them must change so many rows.
pub(super) struct Steps {
    form: &'static str,
    statements: Vec<(String, Vec<SqlValue>)>,
    expect: Option<u64>,
}

impl Steps {
    /// The staged write as SQL, or why it cannot be one.
    pub fn of(staged: &StagedWrite) -> Result<Self, Error> {
        let form = staged.form();
        match staged {
            StagedWrite::Row(row) => Ok(Self { form, statements: row_sql(row)?, expect: Some(1) }),
            StagedWrite::Native { value, .. } => match value.downcast_ref::<SqlStatement>() {
                Some(SqlStatement { sql, params, expect_changes }) => Ok(Self {
                    form,
                    statements: vec![(sql.clone(), params.clone())],
                    expect: *expect_changes,
                }),
                None => Err(refuse(format!("SQLite takes RowWrite or {NATIVE}, not {form}"))),
            },
        }
    }

    /// Runs the statements in the transaction `open`. False if a condition did not hold; some of
    /// them may have run then, so the transaction must not be committed.
    pub fn run(&self, open: &Connection) -> Result<bool, Error> {
        let mut changed = 0;
        for (sql, params) in &self.statements {
            let mut statement = open.prepare(sql).map_err(|error| self.fault(error))?;
            // COMMIT and ROLLBACK count as reading: they would end the transaction half-way.
            if statement.readonly() {
                return Err(refuse(format!("{}: a statement that writes nothing", self.form)));
            }
            match statement.execute(params_from_iter(params)) {
                Ok(rows) => changed += u64::try_from(rows).unwrap_or(u64::MAX),
                Err(error) if is_condition(&error) => {
                    // The answer says which write; this says which constraint. Its text may
                    // quote a payload, if a trigger raised it.
                    tracing::debug!(%error, "a staged write was refused");
                    return Ok(false);
                }
                Err(error) => return Err(self.fault(error)),
            }
        }
        Ok(self.expect.is_none_or(|expected| expected == changed))
    }

    /// What may pass is tried again; all else is this write's own fault.
    fn fault(&self, error: rusqlite::Error) -> Error {
        let kind = match kind(&error) {
            ErrorKind::StoreUnavailable => ErrorKind::StoreUnavailable,
            _ => ErrorKind::Staged,
        };
        Error::new(kind, "stage").with_detail(self.form).with_source(error)
    }
}

fn refuse(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Staged, "stage").with_detail(detail)
}

/// A table or column name that means itself, whatever it is called.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQL in the making, its values behind placeholders.
#[derive(Default)]
struct Draft {
    values: Vec<SqlValue>,
}

impl Draft {
    fn value(&mut self, value: impl Into<SqlValue>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn all_equal(&mut self, columns: &Columns) -> Vec<String> {
        let equal = |(name, value): (&String, &_)| {
            format!("{} = {}", quote(name), self.value(Clone::clone(value)))
        };
        columns.iter().map(equal).collect()
    }

    fn done(self, sql: String) -> (String, Vec<SqlValue>) {
        (sql, self.values)
    }
}

fn row_sql(row: &RowWrite) -> Result<Vec<(String, Vec<SqlValue>)>, Error> {
    row.check()?;
    Ok(match row {
        RowWrite::PutIfAbsent { table, key, values } => vec![insert_if_absent(table, key, values)],
        RowWrite::Add { table, key, add, floor } => {
            let mut steps = vec![update_sums(table, key, add, floor)];
            // If there is no row, every column counts as 0.
            let sum = |column: &String| add.get(column).copied().unwrap_or(0);
            if floor.iter().all(|(column, least)| sum(column) >= *least) {
                let sums = add.iter().map(|(name, by)| (name.clone(), (*by).into())).collect();
                // Finds the row that the update has found, and does nothing then.
                steps.push(insert_if_absent(table, key, &sums));
            }
            steps
        }
        RowWrite::DeleteIf { table, key, values } => {
            let mut draft = Draft::default();
            let shown = [draft.all_equal(key), draft.all_equal(values)].concat().join(" AND ");
            vec![draft.done(format!("DELETE FROM {} WHERE {shown}", quote(table)))]
        }
    })
}

/// Looks for the row itself: the table may have no unique constraint on these columns, and nobody
/// else writes while this transaction is open.
fn insert_if_absent(table: &str, key: &Columns, values: &Columns) -> (String, Vec<SqlValue>) {
    let mut draft = Draft::default();
    let (names, places): (Vec<_>, Vec<_>) = key
        .iter()
        .chain(values)
        .map(|(name, value)| (quote(name), draft.value(value.clone())))
        .unzip();
    let same = draft.all_equal(key).join(" AND ");
    let (table, names, places) = (quote(table), names.join(", "), places.join(", "));
    draft.done(format!(
        "INSERT INTO {table} ({names}) SELECT {places} \
         WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {same})"
    ))
}

fn update_sums(
    table: &str,
    key: &Columns,
    add: &BTreeMap<String, i64>,
    floor: &BTreeMap<String, i64>,
) -> (String, Vec<SqlValue>) {
    let mut draft = Draft::default();
    let mut conditions = draft.all_equal(key);
    let mut sets = Vec::new();
    for (column, by) in add {
        let name = quote(column);
        let sum = format!("COALESCE({name}, 0) + {}", draft.value(*by));
        // SQLite would make a number of text, and a rounded one of a sum past 64 bits.
        conditions.push(format!("typeof(COALESCE({name}, 0)) = 'integer'"));
        conditions.push(format!("typeof({sum}) = 'integer'"));
        sets.push(format!("{name} = {sum}"));
    }
    for (column, least) in floor {
        let by = draft.value(add.get(column).copied().unwrap_or(0));
        let least = draft.value(*least);
        conditions.push(format!("COALESCE({}, 0) + {by} >= {least}", quote(column)));
    }
    let (sets, conditions) = (sets.join(", "), conditions.join(" AND "));
    draft.done(format!("UPDATE {} SET {sets} WHERE {conditions}", quote(table)))
}
