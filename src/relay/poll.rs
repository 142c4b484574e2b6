//! The relay outside Lambda: looks into the outbox, again and again, until it is told to stop.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use super::Relay;
use crate::error::{Error, ErrorKind};
use crate::runtime::before;
use crate::service::Deadline;
use crate::store::Take;

/// How long it rests where there is nothing to send on.
const REST: Duration = Duration::from_millis(500);
/// The longest it rests where nothing could be sent on.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The time of one round, and for how long what it has taken is nobody else's.
const ROUND: Duration = Duration::from_secs(60);
/// Entries of one round.
const PAGE: usize = 100;
/// How long what is under way may go on after a stop.
const GRACE: Duration = Duration::from_secs(20);

impl Relay {
    /// Sends on what comes until `stop` says so. Then nothing more is taken, and what is under way
    /// may end, for 20 s at most.
    pub async fn poll(&self, stop: watch::Receiver<bool>) {
        info!("relaying the outbox");
        let mut told = stop.clone();
        let give_up = async {
            // An error means that nobody can say stop any more; then it is as good as said.
            let _ = told.wait_for(|is_stopping| *is_stopping).await;
            let by = self.worker.clock().now() + GRACE;
            self.worker.stop_by(by);
            self.worker.clock().sleep_until(by + GRACE / 4).await;
        };
        tokio::select! {
            () = self.rounds(stop) => info!("the relay has stopped"),
            () = give_up => warn!("the relay was stopped; what was under way is sent on again"),
        }
    }

    async fn rounds(&self, mut stop: watch::Receiver<bool>) {
        let clock = self.worker.clock();
        let mut in_vain = 0u32;
        while !*stop.borrow() {
            match self.round().await {
                Ok(Round { sent: 0, left: 0 }) => in_vain = 0,
                Ok(Round { sent: 0, .. }) => in_vain = in_vain.saturating_add(1),
                Ok(_) => {
                    in_vain = 0;
                    continue;
                }
                Err(error) => {
                    in_vain = in_vain.saturating_add(1);
                    warn!(%error, "cannot read the outbox; trying again");
                }
            }
            let rest = REST.saturating_mul(2u32.saturating_pow(in_vain)).min(LONGEST_REST);
            let told = stop.wait_for(|is_stopping| *is_stopping);
            before(clock, clock.now() + rest, told).await;
        }
    }

    async fn round(&self) -> Result<Round, Error> {
        let clock = self.worker.clock();
        let begun = clock.now();
        let deadline = Deadline::new(begun, begun + ROUND);
        let (mut round, mut after) = (Round::default(), None);
        loop {
            let now = clock.now();
            let made_before = now + Duration::from_millis(1);
            let take = Take { now, made_before, until: deadline.hard, limit: PAGE, after };
            let taken = before(clock, deadline.stop, self.outbox.take(take)).await;
            let taken = taken.ok_or_else(|| {
                Error::new(ErrorKind::StoreUnavailable, "read the outbox")
                    .with_detail("no answer in time")
            })??;
            let left = self.send_on(&taken.entries, deadline).await.len();
            round.sent += taken.entries.len() - left;
            round.left += left;
            after = taken.next;
            if after.is_none() || clock.now() >= deadline.stop {
                return Ok(round);
            }
        }
    }
}

/// What one look at the whole outbox came to.
#[derive(Clone, Copy, Default)]
struct Round {
    sent: usize,
    left: usize,
}
