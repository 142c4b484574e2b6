//! How a closure in the completing transaction says no.

use std::error::Error as StdError;

use crate::error::BoxError;

/// Why a closure in the completing transaction wants nothing of it to land.
///
/// Every error turns into one by `?`, and this type is no `std::error::Error` itself, so that it
/// can.
#[derive(Debug)]
pub enum Abort {
    /// A condition does not hold. Refuses the completion, as that of a row does.
    Refused,
    /// An error. One of the database counts as it would for a statement: a constraint refuses the
    /// completion, what may pass by itself is tried again. Any other fails the attempt for good.
    Failed(BoxError),
}

impl<E: StdError + Send + Sync + 'static> From<E> for Abort {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
