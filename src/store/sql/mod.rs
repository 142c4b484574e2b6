//! What the stores on SQL have in common: staged statements, and a record as columns.

mod abort;
mod columns;
mod decode;
mod draft;
pub(super) mod outbox;
mod record;
mod rows;
mod statement;

pub use abort::Abort;
pub(super) use decode::{StoredRow, WrongColumn, decode};
pub(super) use draft::Drafted;
pub(super) use record::record_sql;
pub(super) use rows::{Dialect, row_sql};
pub(super) use statement::NATIVE;
pub use statement::{SqlStatement, SqlValue};
