//! Sees everything that crosses a boundary, and says which promise it breaks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::boundary::{Crossing, Fate};
use super::story::{EffectStory, Story};
use crate::context::EffectCall;
use crate::handler::{Call, Router};
use crate::protocol::{
    ConditionalWrite, EffectKey, EffectState, Expect, Record, RecordId, Said, Status, Timestamp,
};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which invariant, from 1; 0 is a look of the test's own.
    pub invariant: u8,
    /// How, in plain words.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.what)
    }
}

impl Broken {
    fn name(&self) -> &'static str {
        match self.invariant {
            0 => "as the test itself saw",
            1 => "staged writes exactly once",
            2 => "one key and one request at the provider",
            3 => "at most once",
            4 => "at least once",
            5 => "no message is lost",
            6 => "no late write lands",
            7 => "no key is stuck",
            8 => "completed stays completed",
            9 => "one payload under a key",
            _ => "one handler at a time",
        }
    }
}

/// How many breaches are kept; one is enough to fail.
const MOST_BROKEN: usize = 20;

/// What has been seen so far.
#[derive(Debug)]
pub struct Witness {
    jobs: Router,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stories: BTreeMap<RecordId, Story>,
    crossings: Vec<(Crossing, Fate)>,
    broken: Vec<Broken>,
}

impl State {
    fn story(&mut self, id: &RecordId) -> &mut Story {
        self.stories.entry(id.clone()).or_default()
    }

    fn broke(&mut self, invariant: u8, what: impl Into<String>) {
        if self.broken.len() < MOST_BROKEN {
            self.broken.push(Broken { invariant, what: what.into() });
        }
    }
}

impl Witness {
    /// Nothing seen yet of these jobs.
    pub fn new(jobs: Router) -> Self {
        Self { jobs, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was broken so far.
    pub fn broken(&self) -> Vec<Broken> {
        self.state().broken.clone()
    }

    /// Adds a breach that somebody else has seen.
    pub fn broke(&self, invariant: u8, what: impl Into<String>) {
        self.state().broke(invariant, what);
    }

    /// Every call so far and what became of it.
    pub fn crossings(&self) -> Vec<(Crossing, Fate)> {
        self.state().crossings.clone()
    }

    /// What has happened under a key.
    pub fn story(&self, id: &RecordId) -> Story {
        self.state().stories.get(id).cloned().unwrap_or_default()
    }

    /// Whether a key has come to an end.
    pub fn is_settled(&self, id: &RecordId) -> bool {
        self.state().stories.get(id).is_some_and(is_settled)
    }

    pub(super) fn crossed(&self, crossing: &Crossing, fate: Fate) {
        self.state().crossings.push((crossing.clone(), fate));
    }

    /// A write has landed on `before` and made `after` of it.
    pub(super) fn committed(
        &self,
        write: &ConditionalWrite,
        before: Option<&Record>,
        after: &Record,
        staged: usize,
        now: Timestamp,
    ) {
        let mut state = self.state();
        for (invariant, what) in faults(write, before, after, now) {
            state.broke(invariant, what);
        }
        let story = state.story(&after.id);
        story.record = Some(after.clone());
        for (name, effect) in &after.effects {
            if effect.state == EffectState::Rejected {
                story.refused.insert(EffectKey::new(&after.id, name, effect.generation));
            }
        }
        if staged > 0 {
            story.staged += 1;
            let times = story.staged;
            if times > 1 {
                state.broke(1, format!("what was staged was committed {times} times"));
            }
            if after.status != Status::Completed {
                state.broke(1, format!("what was staged landed on a {} record", after.status));
            }
        }
    }

    /// A handler is called. Answers whether others must not run at the same time.
    pub(super) fn runs(&self, call: &Call) -> bool {
        let Some(job) = self.jobs.get(call.context.job()) else {
            return false;
        };
        let print = job.fingerprint(&call.payload);
        let mut state = self.state();
        let story = state.story(call.context.id());
        story.runs += 1;
        // Without a claim, copies run side by side, and their one write decides.
        if job.policy.is_fused {
            return false;
        }
        story.live += 1;
        let (live, first) = (story.live, story.payload.clone());
        story.payload = first.clone().or(print.clone());
        if live > 1 {
            state.broke(10, format!("{live} handlers ran under one key at the same time"));
        }
        if first.is_some() && first != print {
            state.broke(9, "a payload other than the first ran under its key");
        }
        true
    }

    pub(super) fn ran(&self, id: &RecordId) {
        let mut state = self.state();
        let story = state.story(id);
        story.live = story.live.saturating_sub(1);
    }

    pub(super) fn begins(&self, call: &EffectCall) {
        let mut state = self.state();
        let story = state.story(&call.id);
        effect(story, call).begun += 1;
    }

    pub(super) fn calls(&self, call: &EffectCall) {
        let mut state = self.state();
        let story = state.story(&call.id);
        let refused = std::mem::take(&mut story.refused);
        let effect = effect(story, call);
        let broken = if call.is_probe {
            effect.asked += 1;
            None
        } else {
            effect.sends(call, &refused)
        };
        story.refused = refused;
        if let Some((invariant, what)) = broken {
            state.broke(invariant, format!("effect {:?} {what}", call.effect));
        }
    }

    pub(super) fn called(&self, call: &EffectCall, came: Result<(), Said>) {
        let mut state = self.state();
        let story = state.story(&call.id);
        effect(story, call).heard(call.is_probe, came);
    }

    /// A message of this key is deleted; whether a copy of it is among the dead letters.
    pub(super) fn acked(&self, id: &RecordId, is_dead: impl Fn() -> bool) {
        let mut state = self.state();
        let status = state.story(id).record.as_ref().map(|record| record.status);
        if status != Some(Status::Completed) && !is_dead() {
            let status = status.map_or("missing", Status::as_str);
            state.broke(
                5,
                format!(
                    "a message was deleted, its record is {status}, and no copy of it is among \
                     the dead letters"
                ),
            );
        }
    }

    /// Checks what must hold once everything is quiet.
    pub fn rest(&self) {
        let mut state = self.state();
        let mut broken = Vec::new();
        for story in state.stories.values() {
            // A fused job that has run leaves a record, too.
            if !is_settled(story) {
                let status = story.record.as_ref().map_or("missing", |it| it.status.as_str());
                broken.push((7, format!("a key was left {status}")));
            }
            if story.record.as_ref().is_none_or(|record| record.status != Status::Completed) {
                continue;
            }
            for (name, effect) in &story.effects {
                if effect.begun > 0 && effect.heard == 0 {
                    let what = format!("completed, and effect {name:?} was never heard of");
                    broken.push((4, what));
                }
            }
        }
        for (invariant, what) in broken {
            state.broke(invariant, what);
        }
    }
}

fn is_settled(story: &Story) -> bool {
    use Status::{Completed, Failed, Unknown};
    story
        .record
        .as_ref()
        .is_some_and(|record| matches!(record.status, Completed | Failed | Unknown))
}

fn effect<'a>(story: &'a mut Story, call: &EffectCall) -> &'a mut EffectStory {
    let new = || EffectStory::new(call.guarantee);
    story.effects.entry(call.effect.clone()).or_insert_with(new)
}

/// What is wrong with a write that has landed. Compared here, and not by the protocol's own hand.
fn faults(
    write: &ConditionalWrite,
    before: Option<&Record>,
    after: &Record,
    now: Timestamp,
) -> Vec<(u8, String)> {
    let mut faults = Vec::new();
    let is_of_now = match (&write.expect, before) {
        (Expect::Absent, None) => true,
        (Expect::At { claim_id, rev }, Some(before)) => {
            before.claim_id == *claim_id && before.rev == *rev
        }
        _ => false,
    };
    if !is_of_now {
        faults.push((6, "a write that was decided on an older record has landed".to_owned()));
    }
    let Some(before) = before else {
        return faults;
    };
    if after.token < before.token || after.rev.0 != before.rev.0 + 1 {
        faults.push((
            6,
            format!(
                "token {} and revision {} became {} and {}",
                before.token.0, before.rev.0, after.token.0, after.rev.0
            ),
        ));
    }
    let is_expired = before.expires_at.is_some_and(|expiry| expiry.is_past(now));
    if before.status == Status::Completed && !is_expired {
        faults.push((8, format!("a completed record was written again, as {}", after.status)));
    }
    faults
}
