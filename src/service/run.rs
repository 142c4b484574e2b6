//! One attempt: the handler's call, and what is written of its end.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Instrument;

use super::attempt::store_error;
use super::commits::{Commits, Settled};
use super::outcome::{Ending, Outcome};
use super::renewal::{Lapse, Renewal};
use super::stopping::Stopping;
use crate::context::{About, Context, Journal, Staged};
use crate::error::{Error, ErrorKind, HandlerError, kept_text};
use crate::handler::{Call, Job, Policy, Reply};
use crate::payload::Payload;
use crate::protocol::{ConditionalWrite, Held, Output, Timestamp, Verdict, complete, fail};
use crate::runtime::{Ended, before, spawn};
use crate::store::{RowWrite, StagedWrite};

/// One attempt.
pub(super) struct Run<'a> {
    pub commits: &'a Commits,
    pub policy: Policy,
    pub key: &'a str,
    /// No write is sent after this.
    pub until: Timestamp,
    pub stopping: &'a Stopping,
    /// The row of a unique message, which goes as the job ends.
    pub clears: Option<RowWrite>,
    /// How the claim is renewed; `None` if it ends with the attempt's time.
    pub renewal: Option<Renewal<'a>>,
}

/// Twice as long a renewal under way is waited for.
const JOINED: Duration = Duration::from_secs(10);

/// What an attempt came to.
pub(super) type Came = Result<Output, HandlerError>;

/// How an attempt ends once its write has landed.
pub(super) struct End {
    pub write: ConditionalWrite,
    verdict: Verdict,
    error: Option<String>,
}

impl End {
    /// What lands with it.
    pub fn landing<'a>(&self, staged: &'a Staged) -> &'a [StagedWrite] {
        staged.landing(&self.verdict)
    }

    /// What an attempt comes to whose staged write at `index` was refused.
    pub fn refused(&self, staged: &mut Staged, index: usize, came: Came) -> Came {
        staged.refusal(index, &self.verdict).map_or(came, Err)
    }

    /// The outcome, now that the write has landed.
    pub fn outcome(self, held: Held) -> Outcome {
        let held = Box::new(held);
        let ending = match self.verdict {
            Verdict::Completed(output) => Ending::Completed(output),
            Verdict::Released { retry_at } => Ending::Released(retry_at),
            Verdict::Failed => Ending::Failed(held),
            Verdict::Unknown => Ending::Unknown(held),
        };
        Outcome { error: self.error, ..Outcome::of(ending) }
    }
}

impl Run<'_> {
    /// Runs a claimed job.
    pub async fn to_the_end(
        &self,
        job: Job,
        payload: Payload,
        about: About,
        held: Held,
    ) -> Outcome {
        let (token, attempt) = (held.token.0, held.attempt);
        let outcome = match self.called(job, payload, about, held).await {
            Ok((journal, came)) => self.settle(journal, came).await,
            Err(ending) => Outcome::of(ending),
        };
        Outcome { token: Some(token), attempt: Some(attempt), ..outcome }
    }

    /// Calls the handler and takes what it has gathered. An error if nothing can be settled: the
    /// claim is lost, or the handler would not stop and may still be at work.
    pub async fn called(
        &self,
        job: Job,
        payload: Payload,
        about: About,
        held: Held,
    ) -> Result<(Journal, Came), Ending> {
        let lease_until = held.lease_until;
        let context = Context::new(about, self.commits.clone(), held);
        let call = Call { payload, context: context.clone() };
        let result = self.call(job, call, lease_until).await?;
        let journal = context.close().await.ok_or(Ending::Abandoned)?;
        Ok((journal, result.map(|reply| reply.output)))
    }

    /// Runs the handler in a task of its own, so that a panic stays in it, and stops it in time, or
    /// as soon as its claim is not its own any more.
    async fn call(
        &self,
        job: Job,
        call: Call,
        lease_until: Timestamp,
    ) -> Result<Result<Reply, HandlerError>, Ending> {
        let clock = self.commits.clock();
        let context = call.context.clone();
        let over = Notify::new();
        let mut keeping = pin!(self.kept(&context, lease_until, &over));
        let mut lapsed = None;
        let mut task = spawn(job.run(call).in_current_span());
        let ended = tokio::select! {
            // The task first: a result that is there is never thrown away.
            biased;
            ended = task.join() => Some(ended),
            () = self.stopping.reached(clock, context.stop()) => None,
            lapse = &mut keeping => {
                lapsed = Some(lapse);
                None
            }
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                task.stop();
                // Half of the margin, so that the release can still be written.
                let now = clock.now();
                let mut margin = (self.until.since(now) / 2).min(Duration::from_secs(1));
                if let (Some(Lapse::RanOut), Some(renewal)) = (lapsed, &self.renewal) {
                    margin = margin.min(renewal.length / 20);
                }
                before(clock, now + margin, task.join()).await.ok_or(Ending::Abandoned)?
            }
        };
        if lapsed.is_none() {
            // A renewal under way lands before the end is written, and not after it. One that takes
            // too long is in doubt, and sent again first.
            over.notify_one();
            let now = clock.now();
            lapsed = before(clock, now + self.until.since(now).min(JOINED) / 2, keeping).await;
        }
        if lapsed == Some(Lapse::Lost) {
            return Err(Ending::LostLease);
        }
        Ok(match ended {
            Ok(result) => result,
            Err(Ended::Panicked(message)) => {
                Err(HandlerError::retryable(format!("the handler panicked: {message}")))
            }
            Err(Ended::Stopped) => {
                Err(HandlerError::cancelled("the handler was stopped: its time was over"))
            }
        })
    }

    async fn settle(&self, mut journal: Journal, mut came: Came) -> Outcome {
        let until = self.until.min(journal.held.lease_until);
        match journal.make_certain(self.commits, until).await {
            Ok(true) => {}
            Ok(false) => return Outcome::of(Ending::LostLease),
            // What was refused is written with the end.
            Err(error) if error.kind() == ErrorKind::StoreRefused => {}
            Err(error) => return store_error(&error.to_string()),
        }
        // A renewal may have been among what is certain now.
        let until = self.until.min(journal.held.lease_until);
        let Journal { held, mut staged, .. } = journal;
        staged.and_clear(self.clears.clone());
        loop {
            let end = self.end(&held, &came);
            let landing = end.landing(&staged);
            let settled = self.commits.settle(&end.write, landing, until).await;
            came = match settled {
                Ok(Settled::Applied) => return end.outcome(held.advanced()),
                Ok(Settled::LostLease) => return Outcome::of(Ending::LostLease),
                Ok(Settled::Refused(index)) => end.refused(&mut staged, index, came),
                Err(error) => match instead(came, error) {
                    Ok(came) => came,
                    Err(error) => return store_error(&error.to_string()),
                },
            };
        }
    }

    /// What is to be written of what an attempt came to.
    pub fn end(&self, held: &Held, came: &Came) -> End {
        let (now, retention) = (self.commits.clock().now(), self.policy.retention);
        match came {
            Ok(output) => {
                let (write, verdict) = complete(held, output.clone(), retention, now);
                End { write, verdict, error: None }
            }
            Err(error) => {
                let text = kept_text(error.message(), self.key);
                let (policy, jitter) = (&self.policy.retry, self.commits.entropy().jitter());
                let (write, verdict) =
                    fail(held, error.failure(), text.clone(), (policy, retention), now, jitter);
                End { write, verdict, error: Some(text) }
            }
        }
    }
}

/// What an attempt comes to instead, if its completion has not landed for certain and would not if
/// it were sent again. Left claimed, the next attempt would run every effect of this one anew.
pub(super) fn instead(came: Came, error: Error) -> Result<Came, Error> {
    match (came, error.kind()) {
        // Too large for the store, most likely. The effect has happened: complete without.
        (Ok(Output::Stored(_)), ErrorKind::StoreRefused) => Ok(Ok(Output::Omitted)),
        (Ok(_), ErrorKind::StoreRefused | ErrorKind::StoreContended) => {
            Ok(Err(HandlerError::retryable(error)))
        }
        (Ok(_), ErrorKind::Staged) => Ok(Err(HandlerError::terminal(error))),
        _ => Err(error),
    }
}
