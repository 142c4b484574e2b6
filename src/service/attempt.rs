//! The way of one message through a worker.

use std::time::Duration;

use super::commits::{Commits, Settled};
use super::outcome::{Ending, Outcome};
use super::stopping::Stopping;
use super::worker::{Deadline, Delivery, Worker};
use crate::context::{About, Context, Journal};
use crate::error::{Error, ErrorKind, HandlerError, kept_text};
use crate::handler::{Call, Job, Policy, Reply};
use crate::payload::Payload;
use crate::protocol::{
    Claim, ClaimRequest, Held, Output, Quarantine, Record, RecordId, Status, Timestamp, Verdict,
    claim, complete, fail, handler_stop, mark_quarantined,
};
use crate::runtime::{Ended, before, spawn};
use crate::store::Commit;

/// How often a claim is decided anew before the message is given back: each round means that
/// somebody else wrote in between.
const ROUNDS: usize = 8;

impl Worker {
    /// Runs one message as far as it can be run by `deadline`. Never fails: whatever goes wrong is
    /// an [`Outcome`] that says what is certain.
    pub async fn handle(&self, delivery: Delivery, deadline: Deadline) -> Outcome {
        let Some(job) = self.jobs.get(&delivery.job) else {
            let reason = format!(
                "no job is named {:?}; deploy a worker that knows it, or correct the message's \
                 `job` attribute, then redrive",
                short(&delivery.job)
            );
            // Nobody has said how long it may be.
            let job = Some(short(&delivery.job));
            let outcome = Outcome::of(Ending::Undecodable(reason));
            return Outcome { job, ..self.named(&delivery, outcome) };
        };
        let payload = match job.payload(&delivery.body) {
            Ok(payload) => payload,
            Err(error) => {
                let ending = Ending::Undecodable(error.to_string());
                return self.named(&delivery, Outcome::of(ending));
            }
        };
        let outcome = self.attempt(&delivery, job, payload, deadline).await;
        self.named(&delivery, outcome)
    }

    /// Notes on the record that its message has arrived in quarantine. A record that has moved on
    /// meanwhile is left alone.
    pub async fn mark_quarantined(&self, parked: &Held, until: Timestamp) -> Result<(), Error> {
        let write = mark_quarantined(parked, self.clock().now());
        self.commits.settle(&write, &[], until).await.map(drop)
    }

    /// The digest that stands for a delivery's key.
    pub fn record_id(&self, delivery: &Delivery) -> RecordId {
        RecordId::new(&self.namespace, &delivery.job, &delivery.key)
    }

    fn named(&self, delivery: &Delivery, mut outcome: Outcome) -> Outcome {
        outcome.id = Some(self.record_id(delivery));
        outcome.job = Some(delivery.job.clone());
        outcome
    }

    async fn attempt(
        &self,
        delivery: &Delivery,
        job: &Job,
        payload: Payload,
        deadline: Deadline,
    ) -> Outcome {
        let now = self.clock().now();
        let lease_until = match job.policy.timeout {
            Some(timeout) => deadline.hard.min(now + timeout),
            None => deadline.hard,
        };
        let stop = deadline.stop.min(handler_stop(now, lease_until));
        // Without time there is no lease, and without a lease no claim.
        if now >= stop || self.stopping.is_asked() {
            return Outcome::of(Ending::NotStarted);
        }
        let request = ClaimRequest {
            id: self.record_id(delivery),
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
        let held = match self.claim(&request, stop).await {
            Ok(held) => held,
            Err(outcome) => return *outcome,
        };
        let run = Run {
            commits: &self.commits,
            policy: job.policy,
            key: delivery.key.as_str(),
            until: deadline.settled.min(lease_until),
            stopping: &self.stopping,
        };
        let about = About {
            id: request.id,
            job: request.job,
            key: request.key,
            attempt: held.attempt,
            token: held.token,
            message_id: request.message_id,
            stop,
            outside: self.outside,
        };
        run.to_the_end(job.clone(), payload, about, held).await
    }

    /// Claims, or says why not.
    async fn claim(&self, request: &ClaimRequest, until: Timestamp) -> Result<Held, Box<Outcome>> {
        let mut current = None;
        for _ in 0..ROUNDS {
            let (write, won) = match claim(current, request, self.clock().now()) {
                Claim::Take { write, held } => (write, Ok(*held)),
                Claim::Spend { write, parked } => (write, Err(newly_parked(&parked))),
                Claim::Held(held) => return Ok(*held),
                refused => return Err(Box::new(not_claimed(refused, request))),
            };
            match self.commits.commit(&write, &[], until).await {
                Ok(Commit::Applied) => return won.map_err(Box::new),
                Ok(Commit::Conflict(found)) => current = found.map(|record| *record),
                Ok(Commit::Refused { .. }) => {
                    return Err(Box::new(store_error("nothing is staged")));
                }
                Err(error) => return Err(Box::new(store_error(&error.to_string()))),
            }
        }
        Err(Box::new(store_error("the record changed under every one of eight claims")))
    }
}

/// Where a claim that was not taken leaves the message.
fn not_claimed(refused: Claim, request: &ClaimRequest) -> Outcome {
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
                (_, Some(Quarantine::Sent)) => Ending::FailedAndQuarantined,
                _ => Ending::FailedBefore(held),
            };
            Outcome { error: record.error.clone(), ..seen(&record, ending) }
        }
        Claim::Take { .. } | Claim::Spend { .. } | Claim::Held(_) => {
            store_error("a claim that was taken is not refused")
        }
    }
}

fn newly_parked(record: &Record) -> Outcome {
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

fn store_error(text: &str) -> Outcome {
    Outcome { error: Some(kept_text(text, "")), ..Outcome::of(Ending::StoreError) }
}

/// One claimed attempt.
struct Run<'a> {
    commits: &'a Commits,
    policy: Policy,
    key: &'a str,
    /// No write is sent after this.
    until: Timestamp,
    stopping: &'a Stopping,
}

impl Run<'_> {
    async fn to_the_end(&self, job: Job, payload: Payload, about: About, held: Held) -> Outcome {
        let (token, attempt) = (held.token.0, held.attempt);
        let context = Context::new(about, self.commits.clone(), held);
        let call = Call { payload, context: context.clone() };
        let outcome = match self.call(job, call).await {
            None => Outcome::of(Ending::Abandoned),
            Some(result) => match context.close().await {
                Some(journal) => self.settle(journal, result).await,
                None => Outcome::of(Ending::Abandoned),
            },
        };
        Outcome { token: Some(token), attempt: Some(attempt), ..outcome }
    }

    /// Runs the handler in a task of its own, so that a panic stays in it, and stops it in time.
    /// `None` if it would not stop: then it may still be at work, and nothing can be settled.
    async fn call(&self, job: Job, call: Call) -> Option<Result<Reply, HandlerError>> {
        let clock = self.commits.clock();
        let stop = call.context.stop();
        let mut task = spawn(job.run(call));
        let ended = tokio::select! {
            // The task first: a result that is there is never thrown away.
            biased;
            ended = task.join() => ended,
            () = self.stopping.reached(clock, stop) => {
                task.stop();
                // Half of the margin, so that the release can still be written.
                let now = clock.now();
                let margin = (self.until.since(now) / 2).min(Duration::from_secs(1));
                before(clock, now + margin, task.join()).await?
            }
        };
        Some(match ended {
            Ok(result) => result,
            Err(Ended::Panicked(message)) => {
                Err(HandlerError::retryable(format!("the handler panicked: {message}")))
            }
            Err(Ended::Stopped) => {
                Err(HandlerError::cancelled("the handler was stopped: its time was over"))
            }
        })
    }

    async fn settle(&self, mut journal: Journal, result: Result<Reply, HandlerError>) -> Outcome {
        match journal.make_certain(self.commits, self.until).await {
            Ok(true) => {}
            Ok(false) => return Outcome::of(Ending::LostLease),
            // What was refused is written with the end.
            Err(error) if error.kind() == ErrorKind::StoreRefused => {}
            Err(error) => return store_error(&error.to_string()),
        }
        match result {
            Ok(reply) => self.complete(journal, reply.output).await,
            Err(error) => self.fail(journal.held, error).await,
        }
    }

    async fn complete(&self, journal: Journal, output: Output) -> Outcome {
        let Journal { held, staged, .. } = journal;
        let now = self.commits.clock().now();
        let write = |output| complete(&held, output, self.policy.retention, now);
        let (first, mut verdict) = write(output);
        // What is staged lands with a completion or not at all.
        let staged = if matches!(verdict, Verdict::Completed(_)) { staged } else { Vec::new() };
        let mut settled = self.commits.settle(&first, &staged, self.until).await;
        // Too large for the store, most likely. The effect has happened: complete without.
        if matches!(&settled, Err(error) if error.kind() == ErrorKind::StoreRefused) {
            let (without_output, its_verdict) = write(Output::Omitted);
            verdict = its_verdict;
            settled = self.commits.settle(&without_output, &staged, self.until).await;
        }
        match settled {
            Ok(Settled::Applied) => self.settled(held, verdict, None),
            Ok(Settled::LostLease) => Outcome::of(Ending::LostLease),
            Ok(Settled::Refused(index)) => {
                let error = format!("the condition of staged write {index} did not hold");
                self.fail(held, HandlerError::terminal(error)).await
            }
            // It has not landed, for certain, and would not if it were sent again. Left claimed, the
            // next attempt would run every effect of this one anew.
            Err(error) if error.kind() == ErrorKind::StoreRefused => {
                self.fail(held, HandlerError::retryable(error)).await
            }
            Err(error) if error.kind() == ErrorKind::Staged => {
                self.fail(held, HandlerError::terminal(error)).await
            }
            Err(error) => store_error(&error.to_string()),
        }
    }

    async fn fail(&self, held: Held, error: HandlerError) -> Outcome {
        let text = kept_text(error.message(), self.key);
        let policy = (&self.policy.retry, self.policy.retention);
        let (now, jitter) = (self.commits.clock().now(), self.commits.entropy().jitter());
        let (write, verdict) = fail(&held, error.failure(), text.clone(), policy, now, jitter);
        match self.commits.settle(&write, &[], self.until).await {
            Ok(Settled::Applied) => self.settled(held, verdict, Some(text)),
            Ok(_) => Outcome::of(Ending::LostLease),
            Err(error) => store_error(&error.to_string()),
        }
    }

    fn settled(&self, held: Held, verdict: Verdict, error: Option<String>) -> Outcome {
        let held = Box::new(held.advanced());
        let ending = match verdict {
            Verdict::Completed(output) => Ending::Completed(output),
            Verdict::Released { retry_at } => Ending::Released(retry_at),
            Verdict::Failed => Ending::Failed(held),
            Verdict::Unknown => Ending::Unknown(held),
        };
        Outcome { error, ..Outcome::of(ending) }
    }
}

/// A name fit for an error text, and for a log.
pub(crate) fn short(name: &str) -> String {
    name.chars().take(100).collect()
}
