//! The way to the store, open before there is work for it.

use std::time::Duration;

use tracing::warn;

use super::Worker;
use crate::protocol::{Change, ConditionalWrite, Expect, Field, IdempotencyKey, RecordId, Rev};
use crate::runtime::before;

/// How long a start may take longer for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A name that no job has.
const JOB: &str = "onlyonce.warm-up";

impl Worker {
    /// Makes the connection to the store, and lets whoever is asked on the way get ready: the first
    /// message finds all of it there.
    ///
    /// It is a write whose condition cannot hold, of a record that is not there under a claim that
    /// nobody has: it leaves nothing behind, and needs no right that claims do not need. What comes
    /// of it is for the log: a store that is out now may be back when there is work.
    pub(crate) async fn warm_up(&self) {
        let claim_id = self.commits.entropy().claim_id();
        let Ok(key) = IdempotencyKey::new(claim_id.as_str()) else {
            return;
        };
        let write = ConditionalWrite {
            id: RecordId::new(&self.namespace, JOB, &key),
            expect: Expect::At { claim_id, rev: Rev(0) },
            change: Change::Update(vec![Field::Rev(Rev(0))]),
        };
        let until = self.clock().now() + PATIENCE;
        match before(self.clock(), until, self.commits.store().commit(&write, &[])).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                warn!(%error, "the store does not answer as it should; starting all the same")
            }
            None => warn!("the store has not answered within 2 s; starting all the same"),
        }
    }
}
