//! SQL as a staged write: what portable rows cannot say.

use crate::store::{RowValue, StagedWrite};

/// One SQL statement that commits together with the completion, or not at all: on SQLite and on
/// Postgres.
///
/// A condition goes into its `WHERE`, or into the table as `CHECK`, `UNIQUE`, a foreign key or a
/// trigger that raises: each of them refuses the completion, as a row's condition does.
///
/// ```
/// use onlyonce::store::{SqlStatement, StagedWrite};
///
/// let reserve = StagedWrite::from(SqlStatement {
///     sql: "UPDATE stock SET held = held + $1 WHERE sku = $2 AND available >= held + $1".into(),
///     params: vec![3.into(), "cup".into()],
///     expect_changes: Some(1),
/// });
/// # assert_eq!(reserve.form(), "SqlStatement");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SqlStatement {
    /// One `INSERT`, `UPDATE`, `DELETE` or `CREATE`; nothing that only reads or that controls the
    /// transaction, and nothing that answers rows.
    pub sql: String,
    /// The values of `$1`, `$2`, and so on; on SQLite `?1`, `?2` will do as well. On Postgres each
    /// becomes what its place asks for, as if it were written there in quotes.
    pub params: Vec<SqlValue>,
    /// How many rows it must change; any other number refuses the completion. `None`: any number, as
    /// for a `CREATE`.
    pub expect_changes: Option<u64>,
}

/// What it is called.
pub(in crate::store) const NATIVE: &str = "SqlStatement";

impl From<SqlStatement> for StagedWrite {
    fn from(statement: SqlStatement) -> Self {
        Self::Native { form: NATIVE, value: Box::new(statement) }
    }
}

/// A value of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// `NULL`.
    Null,
    /// A whole number; 0 and 1 for false and true.
    Integer(i64),
    /// A number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// Implements `From` for what a value is made of.
macro_rules! values {
    ($($from:ty: $value:ident => $made:expr,)+) => {
        $(impl From<$from> for SqlValue {
            fn from($value: $from) -> Self {
                $made
            }
        })+
    };
}

values! {
    i64: number => Self::Integer(number),
    bool: value => Self::Integer(value.into()),
    f64: number => Self::Real(number),
    &str: text => Self::Text(text.to_owned()),
    String: text => Self::Text(text),
    Vec<u8>: bytes => Self::Blob(bytes),
    RowValue: value => match value {
        RowValue::Text(text) => text.into(),
        RowValue::Integer(number) => number.into(),
        RowValue::Bool(value) => value.into(),
    },
}

impl<T: Into<Self>> From<Option<T>> for SqlValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
