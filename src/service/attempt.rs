//! The way of one message through a worker.

use super::outcome::{Ending, Outcome};
use super::renewal::{Hidden, Renewal};
use super::run::Run;
use super::worker::{Deadline, Delivery, UniqueRow, Worker};
use crate::context::About;
use crate::error::{Error, kept_text};
use crate::handler::Job;
use crate::payload::Payload;
use crate::protocol::{
    Claim, ClaimRequest, Held, Lease, Output, Quarantine, Record, RecordId, Status, Timestamp,
    TraceParent, claim, handler_stop, mark_quarantined,
};
use crate::runtime::before;
use crate::store::{Commit, RowWrite, StagedWrite, clear_unique};
use crate::telemetry::{Count, Latency};

/// How often a claim is decided anew before the message is given back: each round means that
/// somebody else wrote in between.
pub(super) const ROUNDS: usize = 8;

/// What is known of a message besides what it asks for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Around<'a> {
    /// What is kept hidden while the job runs, where claims are renewed.
    pub hidden: Option<&'a dyn Hidden>,
    /// The trace that its producer, or AWS, says it belongs to.
    pub trace: Option<&'a TraceParent>,
    /// Its record's id, where that is known already.
    pub id: Option<&'a RecordId>,
}

impl Worker {
    /// Runs one message as far as it can be run by `deadline`. Never fails: whatever goes wrong is
    /// an [`Outcome`] that says what is certain.
    pub async fn handle(&self, delivery: Delivery, deadline: Deadline) -> Outcome {
        self.handle_around(delivery, deadline, Around::default()).await
    }

    /// The same, with what is known of the message besides.
    pub(crate) async fn handle_around(
        &self,
        delivery: Delivery,
        deadline: Deadline,
        around: Around<'_>,
    ) -> Outcome {
        let id = around.id.cloned().unwrap_or_else(|| self.record_id(&delivery));
        let outcome = self.outcome(&delivery, &id, deadline, around).await;
        let outcome = Outcome { id: Some(id), ..outcome };
        self.note(&delivery, &outcome);
        if let Some(unique) = &delivery.unique
            && outcome.has_ended_otherwise()
        {
            self.clear(unique, deadline).await;
        }
        outcome
    }

    fn note(&self, delivery: &Delivery, outcome: &Outcome) {
        let Some(count) = outcome.count() else {
            return;
        };
        self.meter().count(count);
        if let (Count::Completed, Some(sent)) = (count, delivery.enqueued_at) {
            self.meter().measure(Latency::Age, self.clock().now().since(sent));
        }
    }

    async fn outcome(
        &self,
        delivery: &Delivery,
        id: &RecordId,
        deadline: Deadline,
        around: Around<'_>,
    ) -> Outcome {
        let Some(job) = self.jobs.get(&delivery.job) else {
            let reason = format!(
                "no job is named {:?}; deploy a worker that knows it, or correct the message's \
                 `job` attribute, then redrive",
                short(&delivery.job)
            );
            // Nobody has said how long it may be.
            let job = Some(short(&delivery.job));
            return Outcome { job, ..Outcome::of(Ending::Undecodable(reason)) };
        };
        let outcome = match job.payload(&delivery.body) {
            Ok(payload) => self.attempt(delivery, id, job, payload, deadline, around).await,
            Err(error) => Outcome::of(Ending::Undecodable(error.to_string())),
        };
        Outcome { job: Some(delivery.job.clone()), ..outcome }
    }

    /// Clears the row of a unique message that has not gone with a completion. Best effort: without
    /// it the next of its unique id waits for the row's end.
    async fn clear(&self, UniqueRow { row, nonce }: &UniqueRow, deadline: Deadline) {
        let Some(outbox) = self.outbox() else {
            return;
        };
        let by = deadline.soon(deadline.settled, self.clock().now());
        let cleared = before(self.clock(), by, outbox.clear(row, nonce)).await;
        if let Some(Err(error)) = cleared {
            tracing::warn!(row, %error, "the row of a unique message was not cleared");
        }
    }

    /// Notes on the record that its message has arrived in quarantine. A record that has moved on
    /// meanwhile is left alone.
    pub async fn mark_quarantined(&self, parked: &Held, until: Timestamp) -> Result<(), Error> {
        let write = mark_quarantined(parked);
        self.commits.settle(&write, &[], until).await.map(drop)
    }

    /// The digest that stands for a delivery's key.
    pub fn record_id(&self, delivery: &Delivery) -> RecordId {
        RecordId::new(&self.namespace, &delivery.job, &delivery.key)
    }

    async fn attempt(
        &self,
        delivery: &Delivery,
        id: &RecordId,
        job: &Job,
        payload: Payload,
        deadline: Deadline,
        around: Around<'_>,
    ) -> Outcome {
        let now = self.clock().now();
        let bound = match job.policy.timeout {
            Some(timeout) => deadline.hard.min(now + timeout),
            None => deadline.hard,
        };
        let stop = deadline.stop.min(handler_stop(now, bound));
        let lease_until = match deadline.lease {
            // A fused job claims nothing that could be renewed.
            Some(length) if !job.policy.is_fused => Lease::new(length, bound).until(now),
            _ => bound,
        };
        // Without time there is no lease, and without a lease no claim.
        if now >= stop || self.stopping.is_asked() {
            return Outcome::of(Ending::NotStarted);
        }
        let request = ClaimRequest {
            id: id.clone(),
            namespace: self.namespace.clone(),
            job: delivery.job.clone(),
            key: delivery.key.clone(),
            fingerprint: job.fingerprint(&payload),
            claim_id: self.commits.entropy().claim_id(),
            lease_until,
            skew: self.skew,
            retry: job.policy.retry,
            retention: job.policy.retention,
            enqueued_at: delivery.enqueued_at,
            message_id: delivery.message_id.clone(),
        };
        let run = Run {
            commits: &self.commits,
            policy: job.policy,
            key: delivery.key.as_str(),
            until: deadline.settled.min(bound),
            stopping: &self.stopping,
            clears: self.clears(delivery.unique.as_ref()),
            renewal: deadline.lease.map(|length| Renewal { length, bound, hidden: around.hidden }),
        };
        let about = |held: &Held| About {
            id: request.id.clone(),
            job: request.job.clone(),
            key: request.key.clone(),
            attempt: held.attempt,
            token: held.token,
            message_id: request.message_id.clone(),
            trace: around.trace.cloned(),
            stop,
            skew: self.skew,
            is_fused: job.policy.is_fused,
            outside: self.outside,
            #[cfg(any(test, feature = "test-util"))]
            observer: self.observer.clone(),
        };
        if job.policy.is_fused {
            return run.at_once(job.clone(), payload, about, &request).await;
        }
        match self.claim(&request, run.clears.clone(), stop.min(lease_until)).await {
            Ok(held) => {
                self.meter().count(Count::Claimed);
                run.to_the_end(job.clone(), payload, about(&held), held).await
            }
            Err(outcome) => *outcome,
        }
    }

    /// What clears the row of a unique message.
    fn clears(&self, unique: Option<&UniqueRow>) -> Option<RowWrite> {
        let UniqueRow { row, nonce } = unique?;
        let table = self.commits.store().capabilities().outbox?;
        Some(clear_unique(table, row, nonce))
    }

    /// Claims, or says why not.
    async fn claim(
        &self,
        request: &ClaimRequest,
        clears: Option<RowWrite>,
        until: Timestamp,
    ) -> Result<Held, Box<Outcome>> {
        // Lands with the end of a job that cannot be run again.
        let mut clears: Vec<_> = clears.map(StagedWrite::from).into_iter().collect();
        let mut current = None;
        for _ in 0..ROUNDS {
            let mut landing = Vec::new();
            let (write, won) = match claim(current, request, self.clock().now()) {
                Claim::Take { write, held } => (write, Ok(*held)),
                Claim::Spend { write, parked } => {
                    landing.append(&mut clears);
                    (write, Err(newly_parked(&parked)))
                }
                Claim::Held(held) => return Ok(*held),
                refused => return Err(Box::new(not_claimed(refused, request))),
            };
            match self.commits.commit(&write, &landing, until).await {
                Ok(Commit::Applied) => return won.map_err(Box::new),
                Ok(Commit::Conflict(found)) => current = found.map(|record| *record),
                // There is nothing to clear any more. The record is looked at anew.
                Ok(Commit::Refused { .. }) => current = None,
                Err(error) => return Err(Box::new(store_error(&error.to_string()))),
            }
        }
        Err(Box::new(changed_each_time()))
    }
}

/// Where a claim that was not taken leaves the message.
pub(super) fn not_claimed(refused: Claim, request: &ClaimRequest) -> Outcome {
    match refused {
        Claim::Replay(record) => {
            let output = record.output.clone().unwrap_or(Output::Omitted);
            seen(&record, Ending::Replayed(output))
        }
        Claim::Mismatch(record) => {
            let first = record.fingerprint.clone();
            seen(&record, Ending::Mismatch { first, given: request.fingerprint.clone() })
        }
        Claim::Later { record, retry_at } => seen(&record, Ending::Later(retry_at)),
        Claim::Busy { record, retry_at } => seen(&record, Ending::Busy(retry_at)),
        Claim::Parked(record) => {
            let held = Box::new(Held::of(&record));
            // An unknown one is put there each time: this copy may be the only one left.
            let ending = match (record.status, record.quarantine) {
                (Status::Unknown, _) => Ending::Unknown(held),
                (_, Some(Quarantine::Sent)) if request.is_stray(&record) => {
                    Ending::FailedAndQuarantined
                }
                _ => Ending::FailedBefore(held),
            };
            Outcome { error: record.error.clone(), ..seen(&record, ending) }
        }
        Claim::Take { .. } | Claim::Spend { .. } | Claim::Held(_) => {
            store_error("a claim that was taken is not refused")
        }
    }
}

pub(super) fn newly_parked(record: &Record) -> Outcome {
    let held = Box::new(Held::of(record));
    let ending = match record.status {
        Status::Unknown => Ending::Unknown(held),
        _ => Ending::Failed(held),
    };
    Outcome { error: record.error.clone(), ..seen(record, ending) }
}

fn seen(record: &Record, ending: Ending) -> Outcome {
    Outcome { token: Some(record.token.0), attempt: Some(record.attempt), ..Outcome::of(ending) }
}

/// Others wrote each time, between a decision and its write.
pub(super) fn changed_each_time() -> Outcome {
    store_error("the record changed under every one of eight claims")
}

pub(super) fn store_error(text: &str) -> Outcome {
    Outcome { error: Some(kept_text(text, "")), ..Outcome::of(Ending::StoreError) }
}

/// A name fit for an error text, and for a log.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(100).collect()
}
