//! What keeps a claim and its message's invisibility going while the job runs.
//!
//! Outside Lambda only: there the invocation's deadline is the lease, and nothing is renewed.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tracing::warn;

use super::run::Run;
use crate::context::Context;
use crate::protocol::{Lease, Timestamp};
use crate::runtime::before;

/// A message that its queue hides while its job runs.
#[async_trait]
pub(crate) trait Hidden: Send + Sync {
    /// Hides it for `length` from now. Best effort: a copy that comes all the same finds the claim.
    async fn hide(&self, length: Duration);
}

/// How a claim is renewed.
#[derive(Clone, Copy)]
pub(super) struct Renewal<'a> {
    /// For how long at a time.
    pub length: Duration,
    /// The claim ends with this, however often it is renewed.
    pub bound: Timestamp,
    /// What is hidden along with it.
    pub hidden: Option<&'a dyn Hidden>,
}

/// Why a claim is not renewed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lapse {
    /// The handler has ended.
    Ended,
    /// The claim is a successor's, or an operator's.
    Lost,
    /// It could not be renewed while it was believed.
    RanOut,
}

impl Run<'_> {
    /// Renews the claim, which is believed until `lease_until`, until `over` says that the handler
    /// has ended. A write under way is waited for first.
    pub(super) async fn kept(
        &self,
        context: &Context,
        mut lease_until: Timestamp,
        over: &Notify,
    ) -> Lapse {
        let Some(Renewal { length, bound, hidden }) = self.renewal else {
            over.notified().await;
            return Lapse::Ended;
        };
        let clock = self.commits.clock();
        let lease = Lease::new(length, bound);
        loop {
            let stop = lease.stop(lease_until, context.stop());
            let at = lease.renew_at(clock.now(), stop).min(stop);
            tokio::select! {
                biased;
                () = over.notified() => return Lapse::Ended,
                () = clock.sleep_until(at) => {}
            }
            let now = clock.now();
            if now >= stop {
                return Lapse::RanOut;
            }
            let until = lease.until(now);
            if until > lease_until {
                // Not all the time that is left: it may have to be tried again.
                let by = lease.renew_at(now, stop).min(stop);
                let renewing = context.renew(until, self.policy.retention, by);
                let failed = match before(clock, by, renewing).await {
                    Some(None) => return Lapse::Ended,
                    Some(Some(Ok(true))) => {
                        lease_until = until;
                        None
                    }
                    Some(Some(Ok(false))) => return Lapse::Lost,
                    Some(Some(Err(error))) => Some(error.to_string()),
                    None => Some("no answer in time".to_owned()),
                };
                if let Some(error) = failed {
                    let left_ms = lease_until.remaining(clock.now()).as_millis();
                    warn!(job = context.job(), left_ms, error, "claim not renewed; trying again");
                }
            }
            if let Some(hidden) = hidden {
                // The next renewal must not wait for it.
                let now = clock.now();
                let by = lease.renew_at(now, lease.stop(lease_until, context.stop()));
                if before(clock, by, hidden.hide(length)).await.is_none() {
                    warn!(job = context.job(), "its message was not hidden for longer in time");
                }
            }
        }
    }
}
