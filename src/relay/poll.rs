//! The relay outside Lambda: looks into the outbox, again and again, until it is told to stop.

use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use super::{Relay, Swept};
use crate::runtime::before;

/// How long it rests where there is nothing to send on.
const REST: Duration = Duration::from_millis(500);
/// The longest it rests where nothing could be sent on.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The time of one round.
const ROUND: Duration = Duration::from_secs(60);
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
            match self.once(clock.now() + ROUND).await {
                Ok(Swept { sent: 0, left: 0, .. }) => in_vain = 0,
                Ok(Swept { sent: 0, .. }) => in_vain = in_vain.saturating_add(1),
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
}
