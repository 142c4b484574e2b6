//! PROTOCOL.md's invariants. What a step alone can show is checked at the step, by what the world
//! knows and not by what the protocol says; it leaves a mark that no later step removes.

use onlyonce::protocol::{Change, Expect, Record, Status};
use stateright::Property;

use crate::config::{Config, Kind, PATIENCE, fault};
use crate::interned::Ref;
use crate::model::Protocol;
use crate::worker::Work;
use crate::world::{Account, KEYS, Message, Past, Place, World, Write};

/// Properties that a step breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    OldRevision,
    WentBack,
    LeftCompleted,
    OtherPayload,
    OtherBytes,
    NewKey,
    NotRun,
    Expired,
}

impl World {
    pub fn breaks(&mut self, what: Broken) {
        self.broken |= 1 << what as u16;
    }

    fn keeps(&self, what: Broken) -> bool {
        self.broken & 1 << what as u16 == 0
    }

    /// A payload runs under a key.
    pub fn runs_with(&mut self, key: usize, payload: u8) {
        let first = *self.past[key].payload.get_or_insert(payload);
        if first != payload {
            self.breaks(Broken::OtherPayload);
        }
    }

    fn forget(&mut self, key: usize) {
        let Past { was_completed, is_completed, .. } = self.past[key];
        let was_completed = was_completed || is_completed;
        self.past[key] = Past { was_completed, ..Past::default() };
        self.accounts[key] = Default::default();
    }
}

impl Protocol {
    /// A write arrives. Whether it lands.
    pub fn land(&self, s: &mut World, write: Write) -> bool {
        let key = usize::from(write.key);
        let before = s.records[key];
        let Some(after) = self.calls.apply(write.write, before) else { return false };
        check_landing(s, write, before.map(Ref::get), after.get());
        if after.get().status == Status::Completed {
            s.past[key].is_completed = true;
            let is_all_run = self.config.may & fault::SKIP != 0
                || (s.accounts[key].iter().zip(self.config.effects)).all(|(done, _)| done.runs > 0);
            if !is_all_run {
                s.breaks(Broken::NotRun);
            }
        }
        s.past[key].staged += u8::from(write.is_staged);
        s.records[key] = Some(after);
        true
    }

    /// The store deletes an expired record.
    pub fn delete(&self, s: &mut World, key: usize) {
        if s.records[key].take().is_some_and(|gone| !may_expire(gone.get())) {
            s.breaks(Broken::Expired);
        }
        s.forget(key);
        // Nothing is under way for as long as a record is kept.
        s.late_write = None;
    }
}

/// An outcome that only a person can clear up never goes by itself.
fn may_expire(record: &Record) -> bool {
    record.status != Status::Unknown && !record.has_open_intent()
}

fn check_landing(s: &mut World, write: Write, before: Option<&Record>, after: &Record) {
    let is_expected = match (&write.write.get().expect, before) {
        (Expect::Absent, before) => before.is_none(),
        (Expect::At { claim_id, rev }, Some(before)) => {
            before.claim_id == *claim_id && before.rev == *rev
        }
        (Expect::At { .. }, None) => false,
    };
    if !is_expected {
        s.breaks(Broken::OldRevision);
    }
    let Some(before) = before else { return };
    if after.token < before.token || after.rev <= before.rev {
        s.breaks(Broken::WentBack);
    }
    let is_anew = after.created_at != before.created_at
        || matches!(write.write.get().change, Change::Create(_));
    if is_anew {
        if !may_expire(before) || before.expires_at.is_none() {
            s.breaks(Broken::Expired);
        }
        s.forget(usize::from(write.key));
    } else if before.status == Status::Completed {
        s.breaks(Broken::LeftCompleted);
    }
}

/// How often an effect may have happened.
fn most_runs(kind: Kind, config: &Config) -> Option<u8> {
    match kind {
        Kind::AtLeastOnce => None,
        // Beyond the margin a late owner may begin while its successor asks.
        Kind::Reconcile if !config.is_within_margin() => None,
        Kind::Reconcile | Kind::AtMostOnce | Kind::Keyed { .. } | Kind::KeyedOrAsk { .. } => {
            Some(1)
        }
    }
}

fn runs(s: &World, config: &Config, which: fn(Kind) -> bool) -> bool {
    s.accounts.iter().all(|of_key| {
        let declared = of_key.iter().zip(config.effects);
        let mut checked = declared.filter(|(_, kind)| which(**kind));
        checked.all(|(Account { runs, .. }, kind)| {
            most_runs(*kind, config).is_none_or(|most| *runs <= most)
        })
    })
}

fn messages<'a>(model: &'a Protocol, s: &'a World) -> impl Iterator<Item = (usize, &'a Message)> {
    let sent = model.config.messages.iter().zip(&s.messages);
    sent.map(|((key, ..), message)| (usize::from(*key), message))
}

fn is_lost(model: &Protocol, s: &World) -> bool {
    messages(model, s).any(|(key, acked)| {
        let Past { is_completed, was_completed, .. } = s.past[key];
        let is_kept = |(of, message): (usize, &Message)| {
            let is_back = message.redriven > 0 && message.place != Place::Gone;
            of == key && (message.is_dead || is_back)
        };
        acked.place == Place::Gone
            && !(is_completed || was_completed || messages(model, s).any(is_kept))
    })
}

fn is_wedged(model: &Protocol, s: &World) -> bool {
    if s.now >= model.config.horizon + PATIENCE {
        return true;
    }
    s.is_over()
        && messages(model, s).any(|(key, _)| {
            let is_settled = s.records[key].is_none_or(|record| {
                let status = record.get().status;
                matches!(status, Status::Completed | Status::Failed | Status::Unknown)
            });
            let mut all = messages(model, s).filter(|(of, _)| *of == key);
            let is_settled = is_settled || s.past[key].was_completed;
            // What the queue itself has given up waits there for a person.
            !is_settled && !all.all(|(_, message)| message.is_dead)
        })
}

fn overlaps(model: &Protocol, s: &World) -> bool {
    let mut live = [0u8; KEYS];
    for (worker, attempt) in (0u8..).zip(&s.workers) {
        if let Some(attempt) = attempt {
            let now = s.now + model.config.clocks[usize::from(worker)];
            let key = model.config.messages[usize::from(attempt.message)].0;
            live[usize::from(key)] += u8::from(Work::is_live(model, attempt, now));
        }
    }
    live.iter().any(|live| *live > 1)
}

pub fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always("1 a staged row lands at most once", |_, s: &World| {
            s.past.iter().all(|past| past.staged <= 1)
        }),
        Property::always("1 a staged row lands if completed, and only then", |model, s: &World| {
            !model.config.is_staged
                || s.past.iter().all(|past| (past.staged > 0) == past.is_completed)
        }),
        Property::always("2 a keyed effect happens once at its provider", |model, s: &World| {
            runs(s, &model.config, Kind::is_keyed)
        }),
        Property::always("2 the same bytes under a key", |_, s: &World| {
            s.keeps(Broken::OtherBytes)
        }),
        Property::always("2 a new key after a definite rejection only", |_, s: &World| {
            s.keeps(Broken::NewKey)
        }),
        Property::always("3 at most once", |model, s: &World| {
            runs(s, &model.config, |kind| kind == Kind::AtMostOnce)
        }),
        Property::always("3 once, by asking", |model, s: &World| {
            runs(s, &model.config, |kind| kind == Kind::Reconcile)
        }),
        Property::always("4 every effect has happened if completed", |_, s: &World| {
            s.keeps(Broken::NotRun)
        }),
        Property::always("5 nothing is lost", |model, s: &World| !is_lost(model, s)),
        Property::always("6 nothing decided on an old revision lands", |_, s: &World| {
            s.keeps(Broken::OldRevision)
        }),
        Property::always("6 token and revision never go back", |_, s: &World| {
            s.keeps(Broken::WentBack)
        }),
        Property::always("7 no wedge", |model, s: &World| !is_wedged(model, s)),
        Property::always("8 completed stays", |_, s: &World| s.keeps(Broken::LeftCompleted)),
        Property::always("8 what is unknown never expires", |_, s: &World| {
            s.keeps(Broken::Expired)
        }),
        Property::always("9 another payload never runs", |_, s: &World| {
            s.keeps(Broken::OtherPayload)
        }),
        Property::always("10 no two handlers at once", |model, s: &World| {
            !model.config.is_within_margin() || !overlaps(model, s)
        }),
    ]
}
