//! What a job did under every crash, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::boundary::{Crossing, Fate, Kind};
use super::crash::End;
use super::story::{EffectStory, Story};
use super::witness::Broken;
use crate::context::Guarantee;
use crate::protocol::Status;

/// How many broken cases are kept.
const MOST_KEPT: usize = 10;

/// The least and the most seen.
type Range = (usize, usize);

/// How often an effect did what, over all cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectCount {
    /// What it has declared.
    pub guarantee: Guarantee,
    /// Requests that went out in one case: the least and the most.
    pub sent: (usize, usize),
    /// Requests answered as done.
    pub done: (usize, usize),
    /// The most keys it went out under.
    pub keys: usize,
}

/// How many cases ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Completed.
    pub completed: usize,
    /// Failed, message among the dead letters.
    pub failed: usize,
    /// Parked as unknown, message among the dead letters.
    pub unknown: usize,
    /// None of these.
    pub stuck: usize,
}

/// A case in which a promise was broken.
#[derive(Clone, Debug)]
pub struct BrokenCase {
    /// The faults: what became of which call.
    pub faults: Vec<(Fate, Crossing)>,
    /// What was broken.
    pub broken: Broken,
}

impl fmt::Display for BrokenCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults.is_empty() {
            write!(f, "without any fault")?;
        }
        for (nth, (fate, crossing)) in self.faults.iter().enumerate() {
            let then = if nth == 0 { "" } else { ", then " };
            let number = crossing.number + 1;
            write!(f, "{then}{} {:?} (call {number})", fate.as_str(), crossing.to_string())?;
        }
        write!(f, ": {}", self.broken)
    }
}

/// What a job did under every crash. `Display` tells it in words.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// The calls of a run without faults, in order.
    pub calls: Vec<String>,
    /// Cases with one fault.
    pub singles: usize,
    /// Cases with two.
    pub pairs: usize,
    /// How often each effect did what, by name.
    pub effects: BTreeMap<String, EffectCount>,
    /// How often what is staged was committed in one case: the least and the most.
    pub staged: (usize, usize),
    /// How the cases ended.
    pub ended: Ended,
    /// Cases in which a promise was broken; the first ten.
    pub broken: Vec<BrokenCase>,
    /// How many there were.
    pub breaches: usize,
    /// Faults that were planned and not met: the job did not do the same each time.
    pub missed: usize,
    /// Kinds of calls that were seen, and those that were ever failed.
    traced: BTreeSet<Kind>,
    tried: BTreeSet<Kind>,
}

impl CrashReport {
    pub(super) fn new(calm: &End) -> Self {
        let mut report = Self {
            calls: calm.crossings.iter().map(|(crossing, _)| crossing.to_string()).collect(),
            singles: 0,
            pairs: 0,
            effects: BTreeMap::new(),
            staged: (calm.story.staged, calm.story.staged),
            ended: Ended::default(),
            broken: Vec::new(),
            breaches: 0,
            missed: 0,
            traced: BTreeSet::new(),
            tried: BTreeSet::new(),
        };
        report.count(calm);
        report.judge(&[], calm, &calm.broken);
        report
    }

    pub(super) fn add(&mut self, calm: &End, plan: &[(usize, Fate)], end: &End) {
        match plan.len() {
            1 => self.singles += 1,
            _ => self.pairs += 1,
        }
        self.missed += plan.len() - end.met.min(plan.len());
        self.count(end);
        let mut broken = end.broken.clone();
        broken.extend(compared(&calm.story, &end.story));
        self.judge(plan, end, &broken);
    }

    fn count(&mut self, end: &End) {
        for (crossing, fate) in &end.crossings {
            self.traced.insert(crossing.kind);
            if *fate != Fate::Passes {
                self.tried.insert(crossing.kind);
            }
        }
        self.staged = wider(self.staged, end.story.staged);
        for (name, story) in &end.story.effects {
            let new = || EffectCount {
                guarantee: story.guarantee,
                sent: (story.sent, story.sent),
                done: (story.done, story.done),
                keys: 0,
            };
            let count = self.effects.entry(name.clone()).or_insert_with(new);
            count.sent = wider(count.sent, story.sent);
            count.done = wider(count.done, story.done);
            count.keys = count.keys.max(story.keys.len());
        }
        let ended = match end.status() {
            Some(Status::Completed) => &mut self.ended.completed,
            Some(Status::Failed) => &mut self.ended.failed,
            Some(Status::Unknown) => &mut self.ended.unknown,
            _ => &mut self.ended.stuck,
        };
        *ended += 1;
    }

    fn judge(&mut self, plan: &[(usize, Fate)], end: &End, broken: &[Broken]) {
        self.breaches += broken.len();
        for broken in broken.iter().take(MOST_KEPT.saturating_sub(self.broken.len())) {
            let fault = |(number, fate): &(usize, Fate)| {
                Some((*fate, end.crossings.get(*number)?.0.clone()))
            };
            let faults = plan.iter().filter_map(fault).collect();
            self.broken.push(BrokenCase { faults, broken: broken.clone() });
        }
    }

    /// Whether every promise was kept in every case, and every kind of call was failed.
    pub fn holds(&self) -> bool {
        self.breaches == 0 && self.missed == 0 && self.untried().is_empty()
    }

    /// How many cases there were.
    pub fn cases(&self) -> usize {
        self.singles + self.pairs
    }

    /// Kinds of calls that were seen.
    pub fn kinds(&self) -> Vec<Kind> {
        self.traced.iter().copied().collect()
    }

    /// Kinds of calls that were seen and that never failed.
    pub fn untried(&self) -> Vec<Kind> {
        self.traced.difference(&self.tried).copied().collect()
    }
}

/// What a completed job must have done, whatever happened on the way.
fn compared(calm: &Story, story: &Story) -> Vec<Broken> {
    let is_completed = |story: &Story| {
        story.record.as_ref().is_some_and(|record| record.status == Status::Completed)
    };
    let mut broken = Vec::new();
    if !is_completed(calm) || !is_completed(story) {
        return broken;
    }
    if story.staged != calm.staged {
        let what = format!("completed, and what was staged was committed {} times", story.staged);
        broken.push(Broken { invariant: 1, what });
    }
    for (name, calm) in calm.effects.iter().filter(|(_, effect)| effect.done > 0) {
        let is_missing = |it: &EffectStory| it.done == 0 && it.asked == 0;
        if story.effects.get(name).is_none_or(is_missing) {
            let invariant = if calm.guarantee == Guarantee::AtLeastOnce { 4 } else { 2 };
            let what = format!("completed, and effect {name:?} never happened");
            broken.push(Broken { invariant, what });
        }
    }
    broken
}

fn wider((least, most): Range, seen: usize) -> Range {
    (least.min(seen), most.max(seen))
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "calls: {}", self.calls.join(", "))?;
        writeln!(f, "cases: {} with one fault, {} with two", self.singles, self.pairs)?;
        let Ended { completed, failed, unknown, stuck } = self.ended;
        writeln!(
            f,
            "ended: {completed} completed, {failed} failed, {unknown} unknown, {stuck} stuck"
        )?;
        for (name, count) in &self.effects {
            let promise = match count.guarantee {
                Guarantee::AtLeastOnce => "at least once",
                Guarantee::Keyed => "keyed",
                Guarantee::Reconcile => "reconcile",
                Guarantee::AtMostOnce => "at most once",
            };
            let ((sent, most_sent), (done, most_done)) = (count.sent, count.done);
            writeln!(
                f,
                "effect {name:?}, {promise}: sent {sent} to {most_sent} times, answered as done \
                 {done} to {most_done} times, under {} key(s) at most",
                count.keys
            )?;
        }
        if self.staged.1 > 0 {
            writeln!(f, "staged: committed {} to {} times", self.staged.0, self.staged.1)?;
        }
        for kind in self.untried() {
            writeln!(f, "NOT TRIED: no {kind} was ever made to fail")?;
        }
        if self.missed > 0 {
            writeln!(
                f,
                "NOT REACHED: {} faults; the job does not do the same each time",
                self.missed
            )?;
        }
        if self.breaches == 0 {
            return write!(f, "every promise was kept");
        }
        write!(f, "BROKEN {} times:", self.breaches)?;
        self.broken.iter().try_for_each(|case| write!(f, "\n  {case}"))
    }
}
