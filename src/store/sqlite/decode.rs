//! A row of the file as the columns of a record.

use rusqlite::Row;

use crate::store::sql::{StoredRow, WrongColumn};

impl StoredRow for Row<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, WrongColumn> {
        self.get(name).map_err(|_| WrongColumn)
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, WrongColumn> {
        self.get(name).map_err(|_| WrongColumn)
    }
}

#[cfg(test)]
#[path = "decode_fuzz.rs"]
mod fuzz;
