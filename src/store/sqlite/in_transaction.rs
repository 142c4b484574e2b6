//! A closure as a staged write.

use std::fmt;
use std::sync::Arc;

use rusqlite::Transaction;

use crate::store::StagedWrite;
use crate::store::sql::Abort;

type Work = dyn Fn(&Transaction<'_>) -> Result<(), Abort> + Send + Sync;

/// Any work in the completing transaction: it lands with the completion, or not at all.
///
/// It may run more than once, as a commit is sent again whose answer was lost: all it does must be
/// in the transaction. Others wait for the file meanwhile. It must not end the transaction: a
/// commit of its own would be past recall when it is noticed.
///
/// ```
/// use onlyonce::store::StagedWrite;
/// use onlyonce::store::sql::Abort;
/// use onlyonce::store::sqlite::InTransaction;
///
/// let reserve = StagedWrite::from(InTransaction::new(|transaction| {
///     let left: i64 =
///         transaction.query_row("SELECT sum(available) FROM stock", [], |row| row.get(0))?;
///     if left < 3 {
///         return Err(Abort::Refused);
///     }
///     transaction.execute("UPDATE stock SET available = available - 3 WHERE sku = 'cup'", [])?;
///     Ok(())
/// }));
/// # assert_eq!(reserve.form(), "sqlite::InTransaction");
/// ```
#[derive(Clone)]
pub struct InTransaction(Arc<Work>);

pub(super) const CLOSURE: &str = "sqlite::InTransaction";

impl InTransaction {
    /// Stages `work`.
    pub fn new(
        work: impl Fn(&Transaction<'_>) -> Result<(), Abort> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(work))
    }

    pub(super) fn run(&self, transaction: &Transaction<'_>) -> Result<(), Abort> {
        (self.0)(transaction)
    }
}

impl fmt::Debug for InTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSURE)
    }
}

impl From<InTransaction> for StagedWrite {
    fn from(work: InTransaction) -> Self {
        Self::Native { form: CLOSURE, value: Box::new(work) }
    }
}
