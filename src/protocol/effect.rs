//! How an effect begins and ends: what its declared class makes of what is remembered of it.

use std::time::Duration;

use super::{EffectKey, EffectRecord, EffectState, Fingerprint, Held, Timestamp};

/// What may happen after a crash in the middle of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectClass {
    /// It is sent again under its key, which the provider remembers for this long, if that is
    /// known.
    Keyed {
        /// The provider's window.
        window: Option<Duration>,
    },
    /// The record says before it begins that it may be under way: it runs at most once, or the
    /// provider is asked.
    Intended,
    /// It runs again.
    Repeated,
}

/// What an effect's end, if it is an error, says of the effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Said {
    /// Nothing: it may have happened.
    #[default]
    Nothing,
    /// This request did nothing, for certain; of earlier ones it says nothing.
    NotSent,
    /// Under this key nothing was done, for certain, by this request or an earlier one.
    Rejected,
    /// The provider knows the key with another request.
    Mismatch,
}

/// How an effect begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It is done; its result.
    Done(String),
    /// Send it under this key.
    Run {
        /// The key.
        key: EffectKey,
        /// Since when it may have been sent under this key before, if it may.
        sent_since: Option<Timestamp>,
    },
    /// It may have happened, and the record alone cannot say.
    Open {
        /// The key it had.
        key: EffectKey,
        /// Since when it may have been under way.
        first_sent: Timestamp,
        /// Why sending it again would not do.
        why: Doubt,
    },
}

/// Why an effect is not simply sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It was begun as one that does not run again by itself.
    Intent,
    /// It is done, and its result could not be kept.
    ResultLost,
    /// The provider may have forgotten the key.
    WindowOver,
    /// Under this key another request was sent.
    OtherRequest,
}

/// Decides how effect `name` begins, and what the record says of it from now on: `None` leaves that
/// as it is. `request` is the digest of what is about to be sent.
pub fn begin(
    held: &Held,
    name: &str,
    class: EffectClass,
    request: Option<&Fingerprint>,
    now: Timestamp,
) -> (Begin, Option<EffectRecord>) {
    let before = held.effects.get(name);
    if let Some(EffectRecord { state: EffectState::Done, result: Some(result), .. }) = before {
        return (Begin::Done(result.clone()), None);
    }
    let generation = match before {
        // Providers replay a rejection under its key.
        Some(EffectRecord { state: EffectState::Rejected, generation, .. }) => {
            generation.saturating_add(1)
        }
        Some(effect) => effect.generation,
        None => 0,
    };
    let key = EffectKey::new(&held.id, name, generation);
    let of_old = before.filter(|effect| effect.state.may_have_happened());
    let record = |state, first_sent, request: Option<&Fingerprint>| {
        let request = request.cloned();
        Some(EffectRecord { state, generation, first_sent, request, result: None })
    };
    let open = |first_sent, why| Begin::Open { key: key.clone(), first_sent, why };
    match (class, of_old) {
        (EffectClass::Repeated, _) => (Begin::Run { key, sent_since: None }, None),
        (EffectClass::Intended, Some(old)) if old.state == EffectState::Done => {
            (open(old.first_sent, Doubt::ResultLost), None)
        }
        (_, Some(old)) if class == EffectClass::Intended || old.state == EffectState::Intent => {
            (open(old.first_sent, Doubt::Intent), None)
        }
        (EffectClass::Intended, _) => {
            (Begin::Run { key, sent_since: None }, record(EffectState::Intent, now, request))
        }
        (EffectClass::Keyed { window }, _) => {
            // An attempt that died without a word may have sent it.
            let since = of_old.map(|old| old.first_sent).or(held.unrecorded_since);
            let sent = of_old.and_then(|old| old.request.as_ref());
            let record = record(EffectState::Sent, since.unwrap_or(now), sent.or(request));
            let is_other =
                matches!((sent, request), (Some(sent), Some(request)) if sent != request);
            let begin = match since {
                Some(since) if is_other => open(since, Doubt::OtherRequest),
                Some(since) if window.is_some_and(|window| now > since + window) => {
                    open(since, Doubt::WindowOver)
                }
                _ => Begin::Run { key, sent_since: since },
            };
            (begin, record)
        }
    }
}

/// What is remembered of an effect that ended in an error. `is_final` says that trying again cannot
/// help.
pub fn after_error(state: EffectState, said: Said, is_final: bool, was_sent: bool) -> EffectState {
    match said {
        Said::Rejected => EffectState::Rejected,
        // Of an earlier request nothing is known by that.
        Said::NotSent | Said::Mismatch if was_sent => state,
        Said::NotSent if !is_final => EffectState::Unsent,
        Said::NotSent | Said::Mismatch => EffectState::Rejected,
        Said::Nothing => state,
    }
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
