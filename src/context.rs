//! What a handler knows of its attempt, and where it declares effects and staged writes.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::effect::Effect;
use crate::error::{Error, ErrorKind, HandlerError};
use crate::protocol::{
    Begin, ConditionalWrite, EffectClass, EffectRecord, EffectState, FencingToken, Fingerprint,
    Held, IdempotencyKey, RecordId, Timestamp, after_error, begin, keep_effects,
};
use crate::runtime::Clock;
use crate::service::{Commits, Settled};
use crate::store::StagedWrite;

/// One attempt at one job. Cheap to clone; worthless once the attempt has ended.
#[derive(Clone)]
pub struct Context {
    attempt: Arc<Attempt>,
}

struct Attempt {
    about: About,
    commits: Commits,
    journal: Mutex<Option<Journal>>,
}

/// What stays the same during an attempt.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub id: RecordId,
    pub job: String,
    pub key: IdempotencyKey,
    pub attempt: u32,
    pub token: FencingToken,
    pub message_id: Option<String>,
    /// When the handler is stopped.
    pub stop: Timestamp,
    /// Nothing is claimed: there is nothing yet to remember an effect by.
    pub is_fused: bool,
    /// What stands for the outside world, when things are only tried out.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only requests go outside"))]
    pub outside: Option<SocketAddr>,
}

/// What the attempt has gathered to be written. Behind one lock, because one claim's writes go one
/// after another.
pub(crate) struct Journal {
    pub held: Held,
    pub staged: Staged,
    begun: HashSet<String>,
    has_unwritten_effects: bool,
    /// A write of effects whose outcome is not known: the handler called it off half-way, or the
    /// store did not say.
    in_doubt: Option<ConditionalWrite>,
}

/// What commits with the completion, and what it means if a condition of it does not hold.
pub(crate) struct Staged {
    writes: Vec<StagedWrite>,
    refusals: Vec<Option<HandlerError>>,
}

impl Staged {
    pub const fn new() -> Self {
        Self { writes: Vec::new(), refusals: Vec::new() }
    }

    pub fn writes(&self) -> &[StagedWrite] {
        &self.writes
    }

    /// What the refusal of the write at `index` means.
    pub fn refusal(&mut self, index: usize) -> HandlerError {
        let declared = self.refusals.get_mut(index).and_then(Option::take);
        declared.unwrap_or_else(|| {
            HandlerError::terminal(format!("the condition of staged write {index} did not hold"))
        })
    }
}

impl Journal {
    /// Notes what is to be written of effect `name`.
    fn note(&mut self, name: &str, record: Option<EffectRecord>) {
        if let Some(record) = record {
            self.held.effects.insert(name.to_owned(), record);
            self.has_unwritten_effects = true;
        }
    }

    /// Writes the effects that are not written yet. Answers false if the claim is lost.
    async fn write_effects(&mut self, commits: &Commits, until: Timestamp) -> Result<bool, Error> {
        let is_mine = self.make_certain(commits, until).await?;
        if !is_mine || !self.has_unwritten_effects {
            return Ok(is_mine);
        }
        self.in_doubt = Some(keep_effects(&self.held, commits.clock().now()));
        self.has_unwritten_effects = false;
        self.make_certain(commits, until).await
    }

    /// Sends what is in doubt again, as its condition holds once: the next write must know the
    /// revision it comes after. Answers false if the claim is lost.
    pub async fn make_certain(
        &mut self,
        commits: &Commits,
        until: Timestamp,
    ) -> Result<bool, Error> {
        let Some(write) = &self.in_doubt else {
            return Ok(true);
        };
        // Whoever waits for this may stop to: until the answer is there, it stays in doubt.
        match commits.settle(write, &[], until).await {
            Ok(Settled::Applied) => {
                self.held.rev = self.held.rev.next();
                self.in_doubt = None;
                Ok(true)
            }
            Ok(Settled::LostLease | Settled::Refused(_)) => Ok(false),
            Err(error) => {
                // It has not landed, for certain.
                if error.kind() == ErrorKind::StoreRefused {
                    self.in_doubt = None;
                    self.has_unwritten_effects = true;
                }
                Err(error)
            }
        }
    }
}

impl Context {
    pub(crate) fn new(about: About, commits: Commits, held: Held) -> Self {
        let journal = Journal {
            held,
            staged: Staged::new(),
            begun: HashSet::new(),
            has_unwritten_effects: false,
            in_doubt: None,
        };
        Self { attempt: Arc::new(Attempt { about, commits, journal: Mutex::new(Some(journal)) }) }
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.attempt.about.job
    }

    /// The operation's key, as the producer gave it. Keep it out of logs at `info`.
    pub fn key(&self) -> &IdempotencyKey {
        &self.attempt.about.key
    }

    /// The digest that stands for the key in logs.
    pub fn id(&self) -> &RecordId {
        &self.attempt.about.id
    }

    /// Which attempt this is, from 1. In a fused job, which knows its record only at its end, 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.about.attempt
    }

    /// This claim's fencing token: a resource that remembers the highest it has seen can refuse a
    /// late owner. In a fused job there is none, and this is 1.
    pub fn token(&self) -> FencingToken {
        self.attempt.about.token
    }

    /// The queue's id of the message. For people: a redrive changes it.
    pub fn message_id(&self) -> Option<&str> {
        self.attempt.about.message_id.as_deref()
    }

    /// When the handler is stopped, if it has not ended by then.
    pub fn stop(&self) -> Timestamp {
        self.attempt.about.stop
    }

    /// Where requests go instead of to their hosts, when things are only tried out.
    #[cfg(feature = "http")]
    pub(crate) fn outside(&self) -> Option<SocketAddr> {
        self.attempt.about.outside
    }

    /// Now, by the worker's clock.
    pub fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Declares a side effect. Its name is part of the key its provider sees: never rename it.
    pub fn effect(&self, name: impl Into<String>) -> Effect {
        Effect::new(self.clone(), name.into())
    }

    /// Adds a write that commits together with the completion, or not at all: exactly once. The
    /// error names what this store takes instead. Nothing is written if the handler fails. If the
    /// write's own condition does not hold, the job fails for good: see [`stage_or`](Self::stage_or).
    pub async fn stage(&self, write: impl Into<StagedWrite>) -> Result<(), HandlerError> {
        self.add(write.into(), None).await
    }

    /// The same, and says what it means if the write's condition does not hold: out of stock, say,
    /// which is terminal, or not yet there, which is worth trying again.
    pub async fn stage_or(
        &self,
        write: impl Into<StagedWrite>,
        refused: HandlerError,
    ) -> Result<(), HandlerError> {
        self.add(write.into(), Some(refused)).await
    }

    async fn add(
        &self,
        write: StagedWrite,
        refused: Option<HandlerError>,
    ) -> Result<(), HandlerError> {
        self.attempt.commits.store().accepts(&write).map_err(HandlerError::terminal)?;
        let mut journal = self.attempt.journal.lock().await;
        let staged = &mut journal.as_mut().ok_or_else(is_over)?.staged;
        staged.writes.push(write);
        staged.refusals.push(refused);
        Ok(())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.attempt.commits.clock()
    }

    /// Begins effect `name`. What earlier effects of this attempt answered is written first, so
    /// that a crash in this one does not run those again; with it goes what is known of this one.
    pub(crate) async fn begin(
        &self,
        name: &str,
        class: EffectClass,
        request: Option<&Fingerprint>,
    ) -> Result<Begin, HandlerError> {
        if self.attempt.about.is_fused {
            return Err(HandlerError::terminal(format!(
                "effect {name:?} in a fused job, which has nothing to remember it by: declare the \
                 job without `fused`"
            )));
        }
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        if !journal.begun.insert(name.to_owned()) {
            return Err(HandlerError::terminal(format!(
                "effect {name:?} was begun twice in one attempt; give each effect its own name"
            )));
        }
        let now = self.clock().now();
        let (begun, record) = begin(&journal.held, name, class, request, now);
        match begun {
            Begin::Run { .. } => self.start(journal, name, class, record).await?,
            _ => journal.note(name, record),
        }
        Ok(begun)
    }

    /// Begins effect `name` once more in this attempt, after its provider was asked.
    pub(crate) async fn begin_again(
        &self,
        name: &str,
        class: EffectClass,
    ) -> Result<(), HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        let state = match class {
            EffectClass::Intended => EffectState::Intent,
            _ => EffectState::Sent,
        };
        let first_sent = self.clock().now();
        let record = journal.held.effects.get(name).cloned();
        let record = record.map(|old| EffectRecord { state, first_sent, result: None, ..old });
        self.start(journal, name, class, record).await
    }

    async fn start(
        &self,
        journal: &mut Journal,
        name: &str,
        class: EffectClass,
        record: Option<EffectRecord>,
    ) -> Result<(), HandlerError> {
        if self.now() >= self.stop() {
            return Err(HandlerError::cancelled(format!(
                "no time is left to begin effect {name:?}"
            )));
        }
        // That a keyed effect is under way is worth no write of its own, and goes with any other.
        let is_owed = journal.has_unwritten_effects || class == EffectClass::Intended;
        journal.note(name, record);
        if is_owed { self.write_effects(journal).await } else { Ok(()) }
    }

    async fn write_effects(&self, journal: &mut Journal) -> Result<(), HandlerError> {
        let commits = &self.attempt.commits;
        let is_mine = journal.write_effects(commits, self.stop()).await.map_err(not_written)?;
        // A late owner starts nothing more.
        if is_mine {
            Ok(())
        } else {
            Err(HandlerError::retryable("the claim was lost to a successor"))
        }
    }

    /// Remembers what an error says of effect `name`.
    pub(crate) async fn failed(
        &self,
        name: &str,
        error: &HandlerError,
        was_sent: bool,
    ) -> Result<(), HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        if let Some(effect) = journal.held.effects.get_mut(name) {
            effect.state = after_error(effect.state, error.said(), error.is_final(), was_sent);
            journal.has_unwritten_effects = true;
        }
        Ok(())
    }

    /// Remembers that effect `name`, begun at `begun`, is done. It is written with the next effect,
    /// or with the attempt's end.
    pub(crate) async fn done(
        &self,
        name: &str,
        begun: Timestamp,
        result: Option<String>,
    ) -> Result<(), HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        let before = journal.held.effects.get(name);
        let generation = before.map_or(0, |effect| effect.generation);
        let sent = before.filter(|effect| effect.state.may_have_happened());
        let first_sent = sent.map_or(begun, |effect| effect.first_sent);
        let state = EffectState::Done;
        let done = EffectRecord { state, generation, first_sent, request: None, result };
        journal.note(name, Some(done));
        Ok(())
    }

    /// Ends the attempt: whoever still holds a clone can begin and write nothing more.
    pub(crate) async fn close(&self) -> Option<Journal> {
        self.attempt.journal.lock().await.take()
    }
}

fn is_over() -> HandlerError {
    HandlerError::retryable("the attempt is over; nothing more can be done in its name")
}

fn not_written(error: Error) -> HandlerError {
    HandlerError::retryable(format!("earlier effects could not be recorded: {error}"))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("about", &self.attempt.about).finish_non_exhaustive()
    }
}
