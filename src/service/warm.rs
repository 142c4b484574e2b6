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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::handler::Router;
    use crate::protocol::Timestamp;
    use crate::runtime::Clock;
    use crate::store::{MemoryStore, Store};
    use crate::test_util::{Fault, FaultStore, SeededEntropy, VirtualClock};

    /// How long it took, with what the store did, and how often the store was asked.
    async fn warmed(fault: Fault) -> (Duration, usize, Arc<MemoryStore>) {
        let clock = Arc::new(VirtualClock::new(Timestamp::from_millis(1_796_000_000_000)));
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(FaultStore::new(memory.clone(), [fault]));
        let worker = Worker::builder(store.clone())
            .clock(clock.clone())
            .entropy(Arc::new(SeededEntropy::new(7, 0.5)))
            .build(Router::new())
            .unwrap();
        let begun = clock.now();
        worker.warm_up().await;
        (clock.now().since(begun), store.commits(), memory)
    }

    #[tokio::test(start_paused = true)]
    async fn the_store_is_asked_once_and_nothing_is_left_there() {
        let (took, asked, memory) = warmed(Fault::None).await;
        assert_eq!((took, asked), (Duration::ZERO, 1));
        let written = RecordId::new("default", JOB, &IdempotencyKey::new("claim-7").unwrap());
        assert_eq!(memory.load(&written).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_out_holds_the_start_up_for_no_longer_than_said() {
        for fault in [Fault::LoseRequest, Fault::Refuse] {
            assert_eq!(warmed(fault).await.0, Duration::ZERO);
        }
        assert_eq!(warmed(Fault::Hang).await.0, PATIENCE);
    }
}
