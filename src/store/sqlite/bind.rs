//! The values of a statement, bound by their numbers.

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Statement, ToSql};

use crate::store::sql::SqlValue;

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Owned(Value::Null),
            Self::Integer(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Real(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Blob(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// Why values do not fit a statement.
pub(super) enum Unfit {
    /// What is wrong with its parameters.
    Parameters(&'static str),
    /// What SQLite says.
    Sqlite(rusqlite::Error),
}

/// Binds each value to every parameter of its number. `$2` is a name to SQLite, whose own number
/// follows where it stands.
pub(super) fn bind(statement: &mut Statement<'_>, values: &[SqlValue]) -> Result<(), Unfit> {
    let mut is_used = vec![false; values.len()];
    let mut is_named = false;
    for index in 1..=statement.parameter_count() {
        let number = match statement.parameter_name(index).map(|name| name.split_at(1)) {
            // `?`, or a number that is left out.
            None => Some(index),
            Some(("?", number)) => number.parse().ok(),
            Some(("$", number)) => {
                is_named = true;
                number.parse().ok()
            }
            Some(_) => None,
        };
        let at = number.and_then(|number: usize| number.checked_sub(1));
        let value = at.and_then(|at| values.get(at).zip(is_used.get_mut(at)));
        let Some((value, is_used)) = value else {
            return Err(Unfit::Parameters("its parameters must be numbers of its values"));
        };
        *is_used = true;
        statement.raw_bind_parameter(index, value).map_err(Unfit::Sqlite)?;
    }
    if is_used.contains(&false) {
        return Err(Unfit::Parameters("more values than parameters"));
    }
    let is_mixed =
        |number: usize| matches!(statement.parameter_index(&format!("?{number}")), Ok(Some(_)));
    // Both would be one parameter, whatever their numbers.
    if is_named && (1..=values.len()).any(is_mixed) {
        return Err(Unfit::Parameters("its parameters are $1 and ?1 at once"));
    }
    Ok(())
}
