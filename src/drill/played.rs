//! The store of a worker in drill mode: it puts down what is written of the drill's own records, and
//! plays what goes wrong around those writes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use super::playing::Playing;
use super::row::Event;
use super::scenario::{DrillKey, Point, Write};
use crate::error::{Error, ErrorKind};
use crate::protocol::{
    Change, ClaimId, ConditionalWrite, Expect, FencingToken, Field, Record, RecordId, Status,
    Timestamp,
};
use crate::runtime::Clock;
use crate::store::{Commit, Overlay, StagedWrite, Store};

/// For how long a worker stands still at most.
const STANDS_STILL: Duration = Duration::from_secs(60);
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// Records known at once: far more than run at once.
const MOST_KNOWN: usize = 20_000;

pub(super) struct PlayedStore {
    inner: Arc<dyn Store>,
    playing: Arc<Playing>,
    known: Mutex<HashMap<RecordId, Known>>,
}

/// What was seen of a record of the drill.
#[derive(Clone)]
struct Known {
    key: DrillKey,
    /// The claims made here.
    tokens: Vec<(ClaimId, u64)>,
}

/// What a write is.
enum Step {
    Claim { claim_id: ClaimId, token: FencingToken, attempt: u32, lease_until: Timestamp },
    Renewal { lease_until: Timestamp },
    End(Status),
    Other,
}

impl PlayedStore {
    pub fn new(inner: Arc<dyn Store>, playing: Arc<Playing>) -> Self {
        Self { inner, playing, known: Mutex::default() }
    }

    fn learn(&self, record: &Record) -> Option<DrillKey> {
        let key: DrillKey = (record.job == super::JOB).then(|| record.key.parse().ok())??;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_KNOWN {
            known.clear();
        }
        let new = || Known { key: key.clone(), tokens: Vec::new() };
        known.entry(record.id.clone()).or_insert_with(new);
        Some(key)
    }

    fn known(&self, id: &RecordId) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn claimed(&self, id: &RecordId, claim_id: &ClaimId, token: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get_mut(id) {
            known.tokens.push((claim_id.clone(), token));
        }
    }

    /// After a write has landed.
    async fn landed(&self, id: &RecordId, known: &Known, step: Step, token: u64) -> Option<Error> {
        let (playing, key) = (&self.playing, &known.key);
        let is_brief = key.scenario.is_brief();
        match step {
            Step::Claim { claim_id, token, attempt, lease_until } => {
                self.claimed(id, &claim_id, token.0);
                if !is_brief {
                    let lease_until = lease_until.millis();
                    playing
                        .note(key, Event::Claimed { token: token.0, attempt, lease_until })
                        .await;
                }
                self.lost(key, Write::Claim).await
            }
            Step::Renewal { lease_until } => {
                let lease_until = lease_until.millis();
                playing.note(key, Event::Renewed { token, lease_until }).await;
                None
            }
            Step::End(status) => {
                if !is_brief {
                    let status = status.to_string();
                    playing.note(key, Event::Settled { token, status }).await;
                }
                if status != Status::Completed {
                    return None;
                }
                playing.crash(key, Point::AfterCommit).await;
                self.lost(key, Write::Completion).await
            }
            Step::Other => None,
        }
    }

    /// After a write was refused, as `record` stands in its way.
    async fn refused(&self, write: &ConditionalWrite, record: &Record, step: &Step) {
        let Some(key) = self.learn(record).filter(|key| !key.scenario.is_brief()) else { return };
        let event = match (step, &write.expect) {
            // One's own, whose answer was lost.
            (Step::Claim { claim_id, .. }, _) if *claim_id == record.claim_id => return,
            (Step::Claim { .. }, Expect::Absent) => {
                Event::Met { status: record.status.to_string() }
            }
            (Step::End(_), Expect::At { claim_id, .. }) if *claim_id != record.claim_id => {
                Event::Refused { token: self.token(&write.id, &write.expect) }
            }
            _ => return,
        };
        self.playing.note(&key, event).await;
    }

    fn token(&self, id: &RecordId, expect: &Expect) -> u64 {
        let (Some(known), Expect::At { claim_id, .. }) = (self.known(id), expect) else { return 0 };
        let mut tokens = known.tokens.iter().rev();
        tokens.find(|(claim, _)| claim == claim_id).map_or(0, |(_, token)| *token)
    }

    /// What is answered instead of "it landed", if that is to be lost here and was not yet.
    async fn lost(&self, key: &DrillKey, to: Write) -> Option<Error> {
        if key.scenario.loses() != Some(to) || !self.playing.is_first(key, "lost").await {
            return None;
        }
        self.playing.note(key, Event::AnswerLost { to }).await;
        let detail = "the answer was lost, as the drill has it";
        Some(Error::new(ErrorKind::StoreUnavailable, "commit").with_detail(detail))
    }

    /// Stands still as a process does that is paused, and then sends its write all the same: nothing
    /// of this attempt goes on meanwhile, and no time limit of its own can call the write off.
    fn paused(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
        key: &DrillKey,
        token: u64,
    ) -> Result<Commit, Error> {
        let clock = self.playing.clock;
        let until = clock.now() + STANDS_STILL;
        block_in_place(|| {
            Handle::current().block_on(async {
                self.playing.note(key, Event::Stalled { token }).await;
                // Until another has taken over and is done.
                while clock.now() < until {
                    let record = self.inner.load(&write.id).await.ok().flatten();
                    if record.is_some_and(|record| record.token.0 > token && is_over(&record)) {
                        break;
                    }
                    clock.sleep_until(clock.now() + LOOKS_EVERY).await;
                }
                self.playing.note(key, Event::WentOn { token }).await;
                self.send(write, staged).await
            })
        })
    }

    /// Whether it is to stand still before this write, and has not yet.
    async fn stands_still(&self, key: &DrillKey, step: &Step) -> bool {
        let is_it = key.scenario.stalls() && matches!(step, Step::End(Status::Completed));
        let has_threads = Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        is_it && has_threads && self.playing.is_first(key, "stalled").await
    }

    /// Sends a write, and puts down what came of it.
    async fn send(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        let step = step(write);
        let known = self.known(&write.id);
        let token = self.token(&write.id, &write.expect);
        let commit = self.inner.commit(write, staged).await?;
        match (&commit, known) {
            (Commit::Applied, Some(known)) => {
                if let Some(lost) = self.landed(&write.id, &known, step, token).await {
                    return Err(lost);
                }
            }
            (Commit::Conflict(Some(record)), _) => self.refused(write, record, &step).await,
            _ => {}
        }
        Ok(commit)
    }
}

fn is_over(record: &Record) -> bool {
    record.status != Status::Claimed
}

fn step(write: &ConditionalWrite) -> Step {
    let claim = |record: &Record| Step::Claim {
        claim_id: record.claim_id.clone(),
        token: record.token,
        attempt: record.attempt,
        lease_until: record.lease_until,
    };
    let fields = match &write.change {
        Change::Create(record) if record.status == Status::Claimed => return claim(record),
        Change::Create(record) => return Step::End(record.status),
        Change::Update(fields) => fields,
    };
    let status = fields.iter().find_map(|field| match field {
        Field::Status(status) => Some(*status),
        _ => None,
    });
    let (mut claim_id, mut token, mut attempt) = (None, FencingToken(0), 0);
    for field in fields {
        match field {
            Field::ClaimId(id) => claim_id = Some(id.clone()),
            Field::Token(to) => token = *to,
            Field::Attempt(to) => attempt = *to,
            _ => {}
        }
    }
    match (status, claim_id, write.lease_until()) {
        (Some(Status::Claimed), Some(claim_id), Some(lease_until)) => {
            Step::Claim { claim_id, token, attempt, lease_until }
        }
        (Some(status), ..) => Step::End(status),
        (None, _, Some(lease_until)) => Step::Renewal { lease_until },
        (None, _, None) => Step::Other,
    }
}

#[async_trait]
impl Overlay for PlayedStore {
    fn under(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    async fn commit_over(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        if let Change::Create(record) = &write.change {
            self.learn(record);
        }
        if let Some(Known { key, .. }) = self.known(&write.id)
            && self.stands_still(&key, &step(write)).await
        {
            let token = self.token(&write.id, &write.expect);
            return self.paused(write, staged, &key, token);
        }
        self.send(write, staged).await
    }
}
