//! Saying what became of what a program cannot know.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{NotNow, write};
use crate::protocol::record::has_open_intent;
use crate::protocol::write::{ConditionalWrite, Field};
use crate::protocol::{
    ClaimId, EffectRecord, EffectState, Output, Record, Retention, Status, Timestamp,
};

/// What a person has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Everything the job does was done: it completes, and nothing of it runs again.
    JobDone(Output),
    /// This effect happened: its result, as JSON text. The job goes on from there with its next
    /// message; completing it here would leave out what comes after the effect.
    EffectDone {
        /// The effect's name.
        effect: String,
        /// What it answered.
        result: String,
    },
    /// No effect in doubt happened, or this one did not: it may begin again, with the job's next
    /// message.
    NotDone {
        /// The effect's name.
        effect: Option<String>,
    },
}

/// A request to resolve an unknown outcome.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// Minted for this write.
    pub claim_id: ClaimId,
    /// How far clocks may differ.
    pub skew: Duration,
    /// For how long after it began a request may still take effect.
    pub settles_within: Duration,
    /// How long a completed record is remembered.
    pub retention: Retention,
    /// What is the case.
    pub resolution: Resolution,
}

/// Takes a record out of `unknown`, once no request of it can still be under way: what a person saw
/// before that might change after they have looked.
pub fn resolve(
    record: &Record,
    request: &Resolve,
    now: Timestamp,
) -> Result<ConditionalWrite, NotNow> {
    if record.status != Status::Unknown {
        return Err(NotNow::Status { is: record.status, wanted: "an unknown one" });
    }
    let until = quiet_at(record, request);
    if now < until {
        return Err(NotNow::UnderWay { until });
    }
    let mut effects = record.effects.clone();
    let fields = match &request.resolution {
        Resolution::JobDone(output) => {
            for effect in effects.values_mut().filter(|e| e.state == EffectState::Intent) {
                effect.state = EffectState::Done;
            }
            vec![
                Field::Status(Status::Completed),
                Field::Output(Some(output.clone())),
                Field::Error(None),
                Field::Quarantine(None),
                Field::ExpiresAt(request.retention.expiry(now, now)),
            ]
        }
        Resolution::EffectDone { effect, result } => {
            let effect = in_doubt(&mut effects, effect)?;
            *effect = EffectRecord {
                state: EffectState::Done,
                request: None,
                result: Some(result.clone()),
                ..effect.clone()
            };
            due(&effects)
        }
        Resolution::NotDone { effect: Some(name) } => {
            let effect = in_doubt(&mut effects, name)?;
            if effect.state == EffectState::Done {
                return Err(NotNow::NotInDoubt { state: effect.state });
            }
            *effect = not_done(record, effect, now);
            due(&effects)
        }
        Resolution::NotDone { effect: None } => {
            let of = |state| names(&record.effects, state);
            // It may have been another one that could not be known, and a new key must not be
            // made for one that nobody has looked at.
            if of(EffectState::Intent).is_empty() && !of(EffectState::Sent).is_empty() {
                return Err(NotNow::NameTheEffect { in_doubt: of(EffectState::Sent) });
            }
            for effect in effects.values_mut().filter(|e| e.state == EffectState::Intent) {
                *effect = not_done(record, effect, now);
            }
            due(&effects)
        }
    };
    let fields = fields.into_iter().chain([Field::Effects(effects)]);
    Ok(write(record, &request.claim_id, now, fields))
}

/// Runs again, with a budget anew, and never expires while it waits for its message; unless another
/// effect is in doubt still, which is resolved next.
fn due(effects: &BTreeMap<String, EffectRecord>) -> Vec<Field> {
    if has_open_intent(effects) {
        return Vec::new();
    }
    vec![
        Field::Status(Status::Released),
        Field::Attempt(0),
        Field::NotBefore(None),
        Field::Quarantine(None),
    ]
}

/// When no request can be under way any more: the attempt's time is over, and what each request in
/// doubt may take from when it began. Twice the margin, for the clock that dated its beginning and
/// the time that took to be written.
fn quiet_at(record: &Record, request: &Resolve) -> Timestamp {
    let in_doubt = record.effects.values().filter(|effect| effect.state != EffectState::Done);
    let in_doubt = in_doubt.filter(|effect| effect.state.may_have_happened());
    let settled = in_doubt
        .map(|effect| effect.first_sent + request.settles_within + request.skew + request.skew);
    settled.fold(record.lease_until + request.skew, Timestamp::max)
}

fn in_doubt<'a>(
    effects: &'a mut BTreeMap<String, EffectRecord>,
    name: &str,
) -> Result<&'a mut EffectRecord, NotNow> {
    let recorded = effects.keys().cloned().collect();
    let effect = effects.get_mut(name).ok_or(NotNow::NoSuchEffect { recorded })?;
    match (effect.state, &effect.result) {
        // It is done, and its result could not be kept.
        (EffectState::Intent | EffectState::Sent, _) | (EffectState::Done, None) => Ok(effect),
        (state, _) => Err(NotNow::NotInDoubt { state }),
    }
}

/// An effect that certainly did not happen. One that its provider saw under a key gets the next
/// key: that one is bound to what was sent, and the provider may answer for it as before.
fn not_done(record: &Record, effect: &EffectRecord, now: Timestamp) -> EffectRecord {
    let EffectRecord { state, generation, first_sent, .. } = *effect;
    let (state, generation, first_sent) = match (state, record.unrecorded_since) {
        (EffectState::Intent, _) => (EffectState::Unsent, generation, first_sent),
        (_, None) => (EffectState::Rejected, generation, first_sent),
        // A death long ago would date the new key as well, and find its window over. It can be
        // sent from now on, and that is said of it.
        (_, Some(_)) => (EffectState::Sent, generation.saturating_add(1), now),
    };
    EffectRecord { state, generation, first_sent, request: None, result: None }
}

fn names(effects: &BTreeMap<String, EffectRecord>, state: EffectState) -> Vec<String> {
    let of = effects.iter().filter(|(_, effect)| effect.state == state);
    of.map(|(name, _)| name.clone()).collect()
}
