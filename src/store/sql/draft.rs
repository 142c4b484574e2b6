//! SQL in the making, its values behind placeholders.

use super::statement::SqlValue;
use crate::store::Columns;

/// A statement with the values of `$1`, `$2`, and so on.
pub(in crate::store) type Drafted = (String, Vec<SqlValue>);

#[derive(Default)]
pub(super) struct Draft {
    values: Vec<SqlValue>,
}

impl Draft {
    /// The placeholder of `value`.
    pub fn value(&mut self, value: impl Into<SqlValue>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    pub fn all_equal(&mut self, columns: &Columns) -> Vec<String> {
        let equal = |(name, value): (&String, &_)| {
            format!("{} = {}", quote(name), self.value(Clone::clone(value)))
        };
        columns.iter().map(equal).collect()
    }

    pub fn done(self, sql: String) -> Drafted {
        (sql, self.values)
    }
}

/// A table or column name that means itself, whatever it is called.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
