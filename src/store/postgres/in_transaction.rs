//! A closure as a staged write.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_postgres::Transaction;

use crate::store::StagedWrite;
use crate::store::sql::Abort;

type Work = dyn for<'a> Fn(&'a Transaction<'_>) -> BoxFuture<'a, Result<(), Abort>> + Send + Sync;

/// Any work in the completing transaction: it lands with the completion, or not at all.
///
/// It may run more than once, as a commit is sent again whose answer was lost or that another
/// transaction was in the way of: all it does must be in the transaction (`SET LOCAL`, not `SET`). It
/// has seconds. It must not end the transaction: a commit of its own would be past recall when it is
/// noticed.
///
/// ```
/// use onlyonce::store::StagedWrite;
/// use onlyonce::store::sql::Abort;
/// use onlyonce::store::postgres::InTransaction;
///
/// let reserve = StagedWrite::from(InTransaction::new(|transaction| {
///     Box::pin(async move {
///         let lock = "SELECT available FROM stock WHERE sku = 'cup' FOR UPDATE";
///         let left: i64 = transaction.query_one(lock, &[]).await?.get(0);
///         if left < 3 {
///             return Err(Abort::Refused);
///         }
///         let take = "UPDATE stock SET available = available - 3 WHERE sku = 'cup'";
///         transaction.execute(take, &[]).await?;
///         Ok(())
///     })
/// }));
/// # assert_eq!(reserve.form(), "postgres::InTransaction");
/// ```
#[derive(Clone)]
pub struct InTransaction(Arc<Work>);

pub(super) const CLOSURE: &str = "postgres::InTransaction";

impl InTransaction {
    /// Stages `work`.
    pub fn new(
        work: impl for<'a> Fn(&'a Transaction<'_>) -> BoxFuture<'a, Result<(), Abort>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(work))
    }

    pub(super) async fn run(&self, transaction: &Transaction<'_>) -> Result<(), Abort> {
        (self.0)(transaction).await
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
