//! What an attempt does around each of its effects.

use super::{Context, Journal, is_over};
use crate::error::{Error, HandlerError};
use crate::protocol::{
    Begin, EffectClass, EffectRecord, EffectState, Fingerprint, Timestamp, after_error, begin,
};

impl Context {
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
        if self.now() >= self.stop().min(journal.held.lease_until) {
            return Err(HandlerError::cancelled(format!(
                "no time is left to begin effect {name:?}"
            )));
        }
        // That a keyed effect is under way is worth no write of its own, and goes with any other.
        let is_owed = journal.has_unwritten_effects || class == EffectClass::Intended;
        let mut intent = record.clone().filter(|_| class == EffectClass::Intended);
        journal.note(name, record);
        if is_owed {
            self.write_effects(journal).await?;
        }
        // An intent long in being written would seem to be of a request that was sent long ago.
        while let Some(record) = &mut intent
            && self.now() > record.first_sent + self.intent_takes()
        {
            record.first_sent = self.now();
            journal.note(name, Some(record.clone()));
            self.write_effects(journal).await?;
        }
        Ok(())
    }

    async fn write_effects(&self, journal: &mut Journal) -> Result<(), HandlerError> {
        let commits = &self.attempt.commits;
        // No longer than the claim is believed: it is not renewed while this holds the journal.
        let until = self.stop().min(journal.held.lease_until);
        let is_mine = journal.write_effects(commits, until).await.map_err(not_written)?;
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
}

fn not_written(error: Error) -> HandlerError {
    HandlerError::retryable(format!("earlier effects could not be recorded: {error}"))
}
