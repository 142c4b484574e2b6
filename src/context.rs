//! What a handler knows of its attempt, and where it declares effects and staged writes.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::effect::Effect;
use crate::error::{Error, ErrorKind, HandlerError};
use crate::protocol::{
    ConditionalWrite, EffectKey, EffectRecord, EffectState, FencingToken, Held, IdempotencyKey,
    RecordId, Timestamp, keep_effects,
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
    /// What stands for the outside world, when things are only tried out.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only requests go outside"))]
    pub outside: Option<SocketAddr>,
}

/// What the attempt has gathered to be written. Behind one lock, because one claim's writes go one
/// after another.
pub(crate) struct Journal {
    pub held: Held,
    pub staged: Vec<StagedWrite>,
    begun: HashSet<String>,
    has_unwritten_effects: bool,
    /// A write of effects whose outcome is not known: the handler called it off half-way, or the
    /// store did not say.
    in_doubt: Option<ConditionalWrite>,
}

impl Journal {
    fn intend(&mut self, name: &str, generation: u64, now: Timestamp) {
        let state = EffectState::Intent;
        let intent = EffectRecord { state, generation, first_sent: now, result: None };
        self.held.effects.insert(name.to_owned(), intent);
        self.has_unwritten_effects = true;
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

/// What must be heeded and written before an effect begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// For how long the provider remembers a key.
    pub window: Option<Duration>,
    /// Whether the record says beforehand that the effect may be under way.
    pub has_intent: bool,
}

/// How an effect begins.
pub(crate) enum Begin {
    /// It is done already; its result.
    Done(String),
    /// Run it under this key.
    Run(EffectKey),
    /// An earlier attempt may have run it, under this key, and did not live to say so.
    Open {
        /// The key.
        key: EffectKey,
        /// When it was begun.
        first_sent: Timestamp,
    },
}

impl Context {
    pub(crate) fn new(about: About, commits: Commits, held: Held) -> Self {
        let journal = Journal {
            held,
            staged: Vec::new(),
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

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.about.attempt
    }

    /// This claim's fencing token: a resource that remembers the highest it has seen can refuse a
    /// late owner.
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
    /// error names what this store takes instead. Nothing is written if the handler fails.
    pub async fn stage(&self, write: impl Into<StagedWrite>) -> Result<(), HandlerError> {
        let write = write.into();
        self.attempt.commits.store().accepts(&write).map_err(HandlerError::terminal)?;
        let mut journal = self.attempt.journal.lock().await;
        journal.as_mut().ok_or_else(is_over)?.staged.push(write);
        Ok(())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.attempt.commits.clock()
    }

    /// Begins effect `name`. What earlier effects of this attempt answered is written first, so
    /// that a crash in this one does not run those again; with it goes the intent, if there is one.
    pub(crate) async fn begin(&self, name: &str, plan: Plan) -> Result<Begin, HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        if !journal.begun.insert(name.to_owned()) {
            return Err(HandlerError::terminal(format!(
                "effect {name:?} was begun twice in one attempt; give each effect its own name"
            )));
        }
        let before = journal.held.effects.get(name);
        if let Some(EffectRecord { state: EffectState::Done, result: Some(result), .. }) = before {
            return Ok(Begin::Done(result.clone()));
        }
        let now = self.clock().now();
        let is_rerun = journal.held.token > FencingToken(1);
        if is_rerun && plan.window.is_some_and(|window| now > journal.held.created_at + window) {
            return Err(HandlerError::unknown(format!(
                "effect {name:?} may have been sent before, and the provider's key window is over: \
                 look it up at the provider"
            )));
        }
        if now >= self.stop() {
            return Err(HandlerError::cancelled(format!(
                "no time is left to begin effect {name:?}"
            )));
        }
        if plan.has_intent {
            let generation = match before {
                Some(EffectRecord { state: EffectState::Intent, first_sent, .. }) => {
                    let key = journal.held.effect_key(name);
                    return Ok(Begin::Open { key, first_sent: *first_sent });
                }
                // Providers replay a rejection under its key.
                Some(EffectRecord { state: EffectState::Rejected, generation, .. }) => {
                    generation.saturating_add(1)
                }
                Some(effect) => effect.generation,
                None => 0,
            };
            journal.intend(name, generation, now);
        }
        self.write_effects(journal).await?;
        Ok(Begin::Run(journal.held.effect_key(name)))
    }

    /// Records anew, before it is sent again, that effect `name` may be under way from now on.
    pub(crate) async fn intend_again(&self, name: &str) -> Result<(), HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        let generation = journal.held.effects.get(name).map_or(0, |effect| effect.generation);
        journal.intend(name, generation, self.clock().now());
        self.write_effects(journal).await
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

    /// Remembers that the provider refused effect `name` for certain.
    pub(crate) async fn rejected(&self, name: &str) -> Result<(), HandlerError> {
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        if let Some(effect) = journal.held.effects.get_mut(name) {
            effect.state = EffectState::Rejected;
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
        let generation = journal.held.effects.get(name).map_or(0, |effect| effect.generation);
        let effect =
            EffectRecord { state: EffectState::Done, generation, first_sent: begun, result };
        journal.held.effects.insert(name.to_owned(), effect);
        journal.has_unwritten_effects = true;
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
