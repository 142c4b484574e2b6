//! What a run has shown: a table per job, one key's story, and a verdict per guarantee.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::Serialize;

use super::Plan;
use super::ledger::Story;
use crate::local::Drained;
use crate::protocol::Status;

/// What a run has shown.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One entry per job, by name.
    pub jobs: BTreeMap<String, JobReport>,
    /// One entry per guarantee that was put to the test.
    pub verdicts: Vec<Verdict>,
    /// Messages in the dead-letter queue at the end.
    pub dead: usize,
    /// Why they are there, and how many for each reason.
    pub dead_letters: BTreeMap<String, usize>,
    /// Dead letters that were sent through again.
    pub redriven: usize,
    /// The key that was hit hardest: what happened to it.
    pub timeline: Option<Timeline>,
    /// What decided the kills; give it again to have them at the same places.
    pub seed: u64,
}

/// One job's figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobReport {
    /// Messages sent, copies included.
    pub messages: u64,
    /// Times one of them was received.
    pub deliveries: u64,
    /// Attempts killed.
    pub killed: u64,
    /// Requests the receiver saw, each one counted.
    pub requests: u64,
    /// Operations whose requests, if they made any, went elsewhere and are not counted.
    pub unseen: u64,
    /// Distinct operations.
    pub keys: u64,
    /// What a provider made of the requests: one per provider key, or one per request without.
    pub effects: u64,
}

/// Whether a guarantee held.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Whether it did.
    pub holds: bool,
    /// In words.
    pub text: String,
}

/// One key's story.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The job.
    pub job: String,
    /// The key.
    pub key: String,
    /// Milliseconds since the start, and what happened.
    pub events: Vec<(u64, String)>,
}

impl Report {
    pub(super) fn new(
        stories: &[Story],
        plan: &Plan,
        drained: Drained,
        redriven: usize,
        dead_letters: BTreeMap<String, usize>,
        has_receiver: bool,
    ) -> Self {
        let mut jobs: BTreeMap<String, JobReport> = BTreeMap::new();
        for story in stories {
            let job = jobs.entry(story.job.clone()).or_default();
            job.messages += story.messages;
            job.deliveries += story.deliveries;
            job.killed += story.kills;
            job.requests += story.requests;
            job.keys += 1;
            let is_unseen = !has_receiver || story.status == Some(Status::Completed);
            let is_unseen = is_unseen && story.requests == 0;
            job.unseen += u64::from(is_unseen);
            job.effects += effects(story);
        }
        let verdicts = verdicts(stories, plan, drained, has_receiver);
        let told = stories.iter().max_by_key(|it| (it.kills_in_flight, it.requests, it.kills));
        let timeline = told.map(|story| Timeline {
            job: story.job.clone(),
            key: story.key.clone(),
            events: story
                .events
                .iter()
                .map(|(at, text)| (u64::try_from(at.as_millis()).unwrap_or(u64::MAX), text.clone()))
                .collect(),
        });
        let (dead, seed) = (drained.dead, plan.seed);
        Self { jobs, verdicts, dead, dead_letters, redriven, timeline, seed }
    }

    /// Whether every guarantee held.
    pub fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }
}

fn is_keyed(story: &Story) -> bool {
    !story.provider_keys.is_empty()
}

fn effects(story: &Story) -> u64 {
    if is_keyed(story) {
        u64::try_from(story.provider_keys.len()).unwrap_or(u64::MAX)
    } else {
        story.requests
    }
}

/// What this key's attempts did that they should not have, if anything.
fn beyond(story: &Story) -> Option<String> {
    let key = &story.key;
    if story.reruns > 0 {
        return Some(format!("key {key:?} was run again after it was completed"));
    }
    let excused = story.kills_in_flight + story.failures;
    let (count, what) = match (story.requests > 1 + excused, story.claims > 1 + excused) {
        (true, _) => (story.requests, "requests"),
        (_, true) => (story.claims, "attempts"),
        _ => return None,
    };
    Some(format!("key {key:?} had {count} {what}, but {excused} attempts were killed or failed"))
}

/// The guarantees by name, and what is promised of each key that made a request; of `at-least-once`
/// nothing more than that.
const PROMISES: [(&str, Option<&str>); 4] = [
    ("keyed", Some("every key exactly one effect")),
    ("reconcile", Some("every key exactly one effect")),
    ("at-least-once", None),
    ("at-most-once", Some("no key more than one request")),
];

fn verdicts(stories: &[Story], plan: &Plan, drained: Drained, has_receiver: bool) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut say = |fault: Option<String>, class: &str, fine: String| {
        let holds = fault.is_none();
        let text = fault.map_or(fine, |fault| format!("BROKEN: {fault}"));
        verdicts.push(Verdict { holds, text: format!("{class}: {text}") });
    };
    let completed = |story: &&Story| story.status == Some(Status::Completed);
    let requested: Vec<&Story> = stories.iter().filter(|story| story.requests > 0).collect();
    for (guarantee, promise) in PROMISES {
        let of_it = requested.iter().filter(|story| story.guarantee.as_deref() == Some(guarantee));
        let of_it: Vec<&Story> = of_it.copied().collect();
        if of_it.is_empty() {
            continue;
        }
        let more = of_it.iter().filter(|story| effects(story) > 1).count();
        match promise {
            Some(promise) => {
                let twice = of_it.iter().find(|story| effects(story) != 1);
                let fault = twice.map(|s| format!("key {:?} has {} effects", s.key, effects(s)));
                say(fault, guarantee, promise.to_owned());
            }
            None if more == 0 => say(None, guarantee, "every key one request".to_owned()),
            None => {
                let fine =
                    format!("every key one request or, after a kill, more ({more} had more)");
                say(None, guarantee, fine);
            }
        }
    }
    if has_receiver {
        // A job of one's own makes no request to the receiver; one of the jobs file always does.
        let silent = stories.iter().filter(completed).find(|story| {
            story.requests == 0 && requested.iter().any(|other| other.job == story.job)
        });
        if let Some(story) = silent {
            let fault = format!("key {:?} is completed without a request", story.key);
            say(Some(fault), "completion", String::new());
        }
    }
    let claimed: Vec<&Story> = stories.iter().filter(|story| story.claims > 0).collect();
    if !claimed.is_empty() {
        let fault = claimed.iter().find_map(|story| beyond(story));
        let requests: u64 = claimed.iter().map(|story| story.requests).sum();
        let attempts: u64 = claimed.iter().map(|story| story.claims).sum();
        let why = match plan.crash == 0.0 {
            true => "duplicates never ran",
            false => "none beyond first attempts and those killed or failed",
        };
        let keys = claimed.len();
        // None at all: the requests, if any, went where nobody counts.
        let requests = match requests {
            0 => String::new(),
            n => format!(" {n} requests,"),
        };
        say(fault, "claims", format!("{attempts} attempts,{requests} {keys} keys: {why}"));
    }
    let unsettled = stories.iter().filter(|story| story.status != Some(Status::Completed)).count();
    let lost = unsettled.saturating_sub(drained.dead);
    let fault = (lost > 0).then(|| format!("{lost} keys are neither completed nor dead letters"));
    let fine = match drained.dead {
        0 => "every key is completed, every message acknowledged".to_owned(),
        n => format!("every key is completed or among the {n} dead letters"),
    };
    say(fault, "no loss", fine);
    verdicts
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header([
            "job",
            "messages",
            "deliveries",
            "killed",
            "requests",
            "keys",
            "effects",
        ]);
        for (name, job) in &self.jobs {
            let figures =
                [job.messages, job.deliveries, job.killed, job.requests, job.keys, job.effects];
            let mut figures = figures.map(|figure| figure.to_string());
            if job.unseen > 0 && job.requests == 0 {
                let [.., requests, _, effects] = &mut figures;
                for figure in [requests, effects] {
                    "-".clone_into(figure);
                }
            }
            table.add_row(std::iter::once(name.clone()).chain(figures));
        }
        writeln!(f, "{table}")?;
        if let Some(timeline) = &self.timeline {
            writeln!(f, "\n{} {:?}", timeline.job, timeline.key)?;
            let mut lines = String::new();
            for (at, event) in &timeline.events {
                let seconds = *at / 1000;
                writeln!(lines, "  {seconds:>4}.{} s  | {event}", *at % 1000 / 100)?;
            }
            f.write_str(&lines)?;
        }
        writeln!(f)?;
        if self.jobs.values().any(|job| job.unseen > 0 && job.requests == 0) {
            writeln!(f, "-    not counted: made by your own code, or sent to the real world")?;
        }
        if self.redriven > 0 {
            writeln!(f, "{} dead letters were sent through again", self.redriven)?;
        }
        for (reason, count) in &self.dead_letters {
            writeln!(f, "dead {count} x {reason}")?;
        }
        for verdict in &self.verdicts {
            writeln!(f, "{} {}", if verdict.holds { "ok  " } else { "FAIL" }, verdict.text)?;
        }
        let killed: u64 = self.jobs.values().map(|job| job.killed).sum();
        write!(f, "kills: {killed}, seed: {}", self.seed)
    }
}
