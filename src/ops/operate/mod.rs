//! An operator's transitions of one record: what is there is read, decided on, and written if it is
//! still there.

mod command;
mod replay;

use std::fmt;

use crate::error::{BoxError, Error};
use crate::protocol::{ClaimId, ConditionalWrite, NotNow, Record, RecordId, Timestamp};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::{Commit, Store};

pub use command::{Desk, OperateVerb, RecordName};

/// How often a record may change between the look and the write, before it is given up.
const LOOKS: usize = 5;

/// Why a record was not changed.
#[derive(Debug)]
pub enum Refused {
    /// There is none.
    NoRecord(RecordId),
    /// Its guard said no.
    NotNow(RecordId, NotNow),
    /// Each look found it changed by the time of the write.
    Contended(RecordId),
}

impl Refused {
    /// When asking again may help, if time alone can.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::NotNow(_, why) => why.until(),
            _ => None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRecord(id) => write!(
                f,
                "there is no record {id} in this store; job, key and ONLYONCE_NAMESPACE name it"
            ),
            Self::NotNow(id, why) => {
                write!(f, "record {id} is left as it is: {why}")?;
                match why.until() {
                    Some(at) => write!(f, "; that is over at {}", super::timeline::instant(at)),
                    None => Ok(()),
                }
            }
            Self::Contended(id) => {
                write!(f, "record {id} keeps changing: a worker is at it; look again, and retry")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// Changes a record as `decide` says, by one write that lands only on the record that was decided
/// on. Answers it as it is then.
pub(crate) async fn transition<F>(
    store: &dyn Store,
    id: &RecordId,
    decide: F,
) -> Result<Record, BoxError>
where
    F: Fn(&Record, ClaimId, Timestamp) -> Result<ConditionalWrite, NotNow>,
{
    let mut found = store.load(id).await?;
    for _ in 0..LOOKS {
        let Some(record) = found else {
            return Err(Refused::NoRecord(id.clone()).into());
        };
        let claim_id = OsEntropy.claim_id();
        let write = decide(&record, claim_id.clone(), SystemClock.now())
            .map_err(|why| Refused::NotNow(id.clone(), why))?;
        found = match commit(store, &write).await? {
            Commit::Applied => {
                return write
                    .apply(Some(&record))
                    .ok_or_else(|| Refused::Contended(id.clone()).into());
            }
            // My write landed and its reply was lost.
            Commit::Conflict(Some(now)) if now.claim_id == claim_id => return Ok(*now),
            Commit::Conflict(now) => now.map(|record| *record),
            Commit::Refused { .. } => return Err(Refused::Contended(id.clone()).into()),
        };
    }
    Err(Refused::Contended(id.clone()).into())
}

async fn commit(store: &dyn Store, write: &ConditionalWrite) -> Result<Commit, Error> {
    match store.commit(write, &[]).await {
        // It may have landed: the same write again finds that out.
        Err(error) if error.is_retryable() => store.commit(write, &[]).await,
        done => done,
    }
}
