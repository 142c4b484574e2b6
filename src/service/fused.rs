//! Fused jobs: no claim, and one transaction that creates the record completed with everything
//! staged. A copy that runs at the same time loses the condition, and its staged writes with it.

use super::attempt::{ROUNDS, changed_each_time, newly_parked, not_claimed, store_error};
use super::outcome::Outcome;
use super::run::{Run, instead};
use crate::context::{About, Journal};
use crate::handler::Job;
use crate::payload::Payload;
use crate::protocol::{Claim, ClaimRequest, Held, Verdict, claim};
use crate::store::Commit;
use crate::telemetry::Count;

impl Run<'_> {
    /// Runs the handler, and only then decides on the record: as a claim would, and settled in the
    /// same write.
    pub async fn at_once(
        &self,
        job: Job,
        payload: Payload,
        about: impl FnOnce(&Held) -> About,
        request: &ClaimRequest,
    ) -> Outcome {
        let clock = self.commits.clock();
        let Claim::Take { held, .. } = claim(None, request, clock.now()) else {
            return store_error("a free key was not free to claim");
        };
        let called = self.called(job, payload, about(&held), *held).await;
        let (Journal { mut staged, .. }, mut came) = match called {
            Ok(called) => called,
            Err(ending) => return Outcome::of(ending),
        };
        let until = match &self.renewal {
            Some(renewal) => self.until.min(clock.now() + renewal.length),
            None => self.until,
        };
        staged.and_clear(self.clears.clone());
        let mut current = None;
        for _ in 0..ROUNDS {
            let (write, held) = match claim(current.take(), request, clock.now()) {
                Claim::Take { write, held } => (write, held),
                // An attempt from before the job was fused has died.
                Claim::Spend { write, parked } => {
                    let spent = Verdict::Failed;
                    match self.commits.commit(&write, staged.landing(&spent), until).await {
                        Ok(Commit::Applied) => return newly_parked(&parked),
                        Ok(Commit::Conflict(found)) => current = found.map(|record| *record),
                        // There is nothing to clear any more.
                        Ok(Commit::Refused { index }) => drop(staged.refusal(index, &spent)),
                        Err(error) => return store_error(&error.to_string()),
                    }
                    continue;
                }
                refused => return not_claimed(refused, request),
            };
            let end = self.end(&held, &came);
            let write = write.then(&end.write);
            match self.commits.commit(&write, end.landing(&staged), until).await {
                Ok(Commit::Applied) => {
                    self.commits.meter().count(Count::Claimed);
                    let (token, attempt) = (Some(held.token.0), Some(held.attempt));
                    return Outcome { token, attempt, ..end.outcome(*held) };
                }
                Ok(Commit::Conflict(found)) => current = found.map(|record| *record),
                Ok(Commit::Refused { index }) => came = end.refused(&mut staged, index, came),
                Err(error) => match instead(came, error) {
                    Ok(other) => came = other,
                    Err(error) => return store_error(&error.to_string()),
                },
            }
        }
        changed_each_time()
    }
}
