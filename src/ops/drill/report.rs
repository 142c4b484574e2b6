//! What a drill has shown: its verdict, a line per scenario, and what happened to each key.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::evidence::{Evidence, KeyEvidence, Sent};
use super::invariant::Judged;
use super::judge::judge;
use super::load::LoadReport;
use super::text;
use crate::drill::{DrillKey, Event, Row, Scenario};
use crate::ops::instant;
use crate::protocol::{Status, Timestamp};

/// Keys of a load whose stories are told, beside those that broke something.
const TOLD: usize = 3;
/// Keys whose stories are told at most.
const MOST_TOLD: usize = 200;

/// A drill's report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Tells this run from others; part of its keys.
    pub run: String,
    /// Where it took place.
    pub place: String,
    /// When it began, as people read it.
    pub began: String,
    pub took_ms: u64,
    /// Workers that were started again.
    pub workers_died: Option<usize>,
    pub scenarios: Vec<ScenarioReport>,
    pub keys: Vec<KeyReport>,
    pub load: Option<LoadReport>,
    pub invariants: Vec<Judged>,
    /// The names of those that did not hold.
    pub broken: Vec<&'static str>,
    pub holds: bool,
}

/// One scenario's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScenarioReport {
    pub scenario: Scenario,
    pub says: &'static str,
    pub keys: usize,
    pub sent: usize,
    pub claims: usize,
    pub crashes: usize,
    pub calls: usize,
    pub effects: usize,
    /// How many keys ended how.
    pub ends: BTreeMap<String, usize>,
    pub dead_letters: usize,
}

/// One key's story.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KeyReport {
    pub key: String,
    pub scenario: Scenario,
    pub ends: Option<String>,
    pub calls: usize,
    pub effects: usize,
    pub dead_letters: Vec<String>,
    pub faults: Vec<String>,
    pub events: Vec<Moment>,
}

/// Something that happened to it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Moment {
    /// Milliseconds since the run began.
    pub at_ms: u64,
    #[serde(flatten)]
    pub event: Happened,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Until when the claim is believed from here on, in milliseconds since the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The same in words.
    pub text: String,
}

/// What happened: with its messages, or put down by a worker.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Happened {
    Sent { what: &'static str },
    Did(Event),
}

/// What is told of a run beside its evidence.
pub(super) struct About {
    pub run: String,
    pub place: String,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub workers_died: Option<usize>,
    pub load: Option<LoadReport>,
}

impl Report {
    pub fn of(evidence: &Evidence, about: About) -> Self {
        let invariants = judge(evidence);
        let broken: Vec<_> = invariants.iter().filter(|it| !it.holds).map(|it| it.name).collect();
        let mut by_scenario: BTreeMap<Scenario, Vec<&KeyEvidence>> = BTreeMap::new();
        for key in &evidence.keys {
            by_scenario.entry(key.key.scenario).or_default().push(key);
        }
        let scenarios = by_scenario.iter().map(|(scenario, keys)| figures(*scenario, keys));
        let mut faults: HashMap<&DrillKey, Vec<String>> = HashMap::new();
        for it in &invariants {
            for (key, fault) in &it.faults {
                faults.entry(key).or_default().push(format!("{}: {fault}", it.name));
            }
        }
        let told = evidence.keys.iter().enumerate().filter_map(|(n, key)| {
            let faults = faults.remove(&key.key).unwrap_or_default();
            let report = story(key, faults, about.began);
            let is_told = !key.key.scenario.is_brief() || n < TOLD || !report.faults.is_empty();
            is_told.then_some(report)
        });
        Self {
            run: about.run,
            place: about.place,
            began: instant(about.began),
            took_ms: about.ended.millis().saturating_sub(about.began.millis()),
            workers_died: about.workers_died,
            scenarios: scenarios.collect(),
            keys: told.take(MOST_TOLD).collect(),
            load: about.load,
            holds: broken.is_empty(),
            invariants,
            broken,
        }
    }
}

fn figures(scenario: Scenario, keys: &[&KeyEvidence]) -> ScenarioReport {
    let count = |is: &dyn Fn(&Row) -> bool| {
        keys.iter().flat_map(|key| key.rows()).filter(|row| is(row)).count()
    };
    let mut ends = BTreeMap::new();
    for key in keys {
        let end = key.record.as_ref().map_or("no record", |record| record.status.as_str());
        *ends.entry(end.to_owned()).or_default() += 1;
    }
    ScenarioReport {
        scenario,
        says: scenario.says(),
        keys: keys.len(),
        sent: keys.iter().map(|key| key.sent.len()).sum(),
        claims: count(&|row| matches!(row.event, Event::Claimed { .. })),
        crashes: count(&|row| matches!(row.event, Event::Crash { .. })),
        calls: count(&|row| matches!(row.event, Event::Called { .. })),
        effects: keys.iter().map(|key| effects(key)).sum(),
        ends,
        dead_letters: keys.iter().map(|key| key.letters.len()).sum(),
    }
}

/// What its provider did; of an effect without a key, the calls that came to an answer.
fn effects(key: &KeyEvidence) -> usize {
    let answered = key.rows().iter().filter(|row| matches!(row.event, Event::Answered { .. }));
    match key.key.scenario.effect() {
        crate::drill::Effect::Keyed => key.kept.accepted,
        crate::drill::Effect::AtMostOnce => answered.count(),
    }
}

fn story(key: &KeyEvidence, faults: Vec<String>, began: Timestamp) -> KeyReport {
    let since = |at: u64| at.saturating_sub(began.millis());
    let sent = key.sent.iter().map(|(at, why)| {
        let what = match why {
            Sent::First => "sent",
            Sent::Copy => "copy sent",
            Sent::Other => "other payload sent",
            Sent::Redriven => "redriven",
        };
        let event = Happened::Sent { what };
        Moment { at_ms: since(*at), event, worker: None, lease_ms: None, text: what.to_owned() }
    });
    let did = key.rows().iter().map(|row| Moment {
        at_ms: since(row.at),
        event: Happened::Did(row.event.clone()),
        worker: Some(row.worker.clone()),
        lease_ms: lease(&row.event).map(since),
        text: text::event(&row.event),
    });
    let acknowledged = acknowledged(key).map(|at| Moment {
        at_ms: since(at),
        event: Happened::Sent { what: "acknowledged" },
        worker: None,
        lease_ms: None,
        text: "acknowledged: none of its messages comes again".to_owned(),
    });
    let mut events: Vec<Moment> = sent.chain(did).chain(acknowledged).collect();
    events.sort_by_key(|moment| moment.at_ms);
    KeyReport {
        scenario: key.key.scenario,
        ends: key.record.as_ref().map(|record| record.status.to_string()),
        calls: key.rows().iter().filter(|row| matches!(row.event, Event::Called { .. })).count(),
        effects: effects(key),
        dead_letters: key.letters.clone(),
        faults,
        events,
        key: key.key.within_its_run(),
    }
}

fn lease(event: &Event) -> Option<u64> {
    match event {
        Event::Claimed { lease_until, .. } | Event::Renewed { lease_until, .. } => {
            Some(*lease_until)
        }
        _ => None,
    }
}

/// When the last of its messages was answered for, where it is done: what a worker did last with it.
fn acknowledged(key: &KeyEvidence) -> Option<u64> {
    let last = key.rows().iter().rev().find(|row| {
        !matches!(row.event, Event::Refused { .. } | Event::WentOn { .. } | Event::Stalled { .. })
    })?;
    let is_it = match &last.event {
        Event::Settled { status, .. } | Event::Met { status } => is_done(status),
        Event::AnswerLost { .. } => true,
        _ => false,
    };
    is_it.then_some(last.at)
}

/// Whether an end of this name is one that nothing follows.
pub(super) fn is_done(status: &str) -> bool {
    status == Status::Completed.as_str()
}
