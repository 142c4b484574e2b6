//! Writes that commit together with a completion: portable rows, and each store's native form.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// A value in a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowValue {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Bool(bool),
}

impl From<&str> for RowValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for RowValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for RowValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for RowValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Named values: a row's key, or its other columns.
pub type Columns = BTreeMap<String, RowValue>;

/// A row write that every store which stages at all understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowWrite {
    /// Makes a row; refused if there is one with this key.
    PutIfAbsent {
        /// The table.
        table: String,
        /// The row's key.
        key: Columns,
        /// Its other columns.
        values: Columns,
    },
    /// Adds to whole-number columns; refused if one would fall below its floor. A column that
    /// is not there counts as 0.
    Add {
        /// The table.
        table: String,
        /// The row's key.
        key: Columns,
        /// What is added, by column; negative takes away.
        add: BTreeMap<String, i64>,
        /// The least each column may come to.
        floor: BTreeMap<String, i64>,
    },
    /// Deletes a row; refused unless it is there and shows these values.
    DeleteIf {
        /// The table.
        table: String,
        /// The row's key.
        key: Columns,
        /// What it must show.
        values: Columns,
    },
}

impl RowWrite {
    /// The row: its table and its key.
    pub(crate) fn at(&self) -> (&str, &Columns) {
        match self {
            Self::PutIfAbsent { table, key, .. }
            | Self::Add { table, key, .. }
            | Self::DeleteIf { table, key, .. } => (table, key),
        }
    }

    /// Refuses what no store can do, when it is staged and not when the job is done.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |detail| Err(Error::new(ErrorKind::Staged, "stage").with_detail(detail));
        match self {
            _ if self.at().1.is_empty() => {
                let table = self.at().0;
                refuse(format!("a row of {table} without a key: name at least one column"))
            }
            Self::Add { table, add, .. } if add.is_empty() => {
                refuse(format!("nothing to add to the row of {table}"))
            }
            _ => Ok(()),
        }
    }
}

/// A write that commits together with the completion, or not at all.
pub enum StagedWrite {
    /// A portable one.
    Row(RowWrite),
    /// A store's own form.
    Native {
        /// What it is called, for the error of a store that does not take it.
        form: &'static str,
        /// The value; the store knows its type.
        value: Box<dyn Any + Send + Sync>,
    },
}

impl StagedWrite {
    /// What it is called in errors.
    pub fn form(&self) -> &'static str {
        match self {
            Self::Row(_) => "RowWrite",
            Self::Native { form, .. } => form,
        }
    }
}

impl From<RowWrite> for StagedWrite {
    fn from(row: RowWrite) -> Self {
        Self::Row(row)
    }
}

impl fmt::Debug for StagedWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form())
    }
}
