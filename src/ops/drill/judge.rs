//! From what was put down to a verdict: one check per invariant, each over one key.

use std::collections::{BTreeSet, HashMap};

use super::evidence::{Evidence, KeyEvidence, Sent};
use super::invariant::{Invariant, Judged};
use crate::drill::{Effect, Event, Row, Scenario};
use crate::protocol::Status;

/// The amount that a key's first message asks for.
pub(super) const FIRST_AMOUNT: u64 = 1;

/// One verdict for each invariant that was put to the test.
pub(super) fn judge(evidence: &Evidence) -> Vec<Judged> {
    let court = Court { evidence, deaths: deaths(evidence) };
    let judged = Invariant::ALL.iter().map(|invariant| {
        let keys = evidence.keys.iter().filter(|key| applies(*invariant, key));
        let keys: Vec<_> = keys.collect();
        let faults =
            keys.iter().filter_map(|key| Some((key.key.clone(), court.fault(*invariant, key)?)));
        let faults: Vec<_> = faults.collect();
        Judged {
            number: invariant.number(),
            name: invariant.name(),
            says: invariant.says(),
            holds: faults.is_empty(),
            keys: keys.len(),
            broken: faults.len(),
            faults,
        }
    });
    judged.filter(|it| it.keys > 0).collect()
}

fn applies(invariant: Invariant, key: &KeyEvidence) -> bool {
    let scenario = key.key.scenario;
    match invariant {
        Invariant::StagedOnce => !scenario.is_brief(),
        Invariant::KeyedOnce => scenario.effect() == Effect::Keyed,
        Invariant::AtMostOnce => scenario.effect() == Effect::AtMostOnce,
        Invariant::Fenced | Invariant::CompletedStays => !scenario.is_brief(),
        Invariant::OwnWrites => scenario.loses().is_some(),
        Invariant::Played => scenario.is_scene(),
        Invariant::NoLoss
        | Invariant::NoWedge
        | Invariant::FirstPayload
        | Invariant::OneAtATime => true,
    }
}

/// Which workers died, and when.
fn deaths(evidence: &Evidence) -> HashMap<&str, u64> {
    let rows = evidence.keys.iter().flat_map(KeyEvidence::rows);
    let crashed = rows.filter(|row| matches!(row.event, Event::Crash { .. }));
    crashed.map(|row| (row.worker.as_str(), row.at)).collect()
}

struct Court<'a> {
    evidence: &'a Evidence,
    deaths: HashMap<&'a str, u64>,
}

impl Court<'_> {
    /// How a key broke it, if it did.
    fn fault(&self, invariant: Invariant, key: &KeyEvidence) -> Option<String> {
        match invariant {
            Invariant::StagedOnce => staged_once(key),
            Invariant::KeyedOnce => keyed_once(key),
            Invariant::AtMostOnce => at_most_once(key),
            Invariant::NoLoss => self.no_loss(key),
            Invariant::Fenced => fenced(key),
            Invariant::NoWedge => self.no_wedge(key),
            Invariant::CompletedStays => completed_stays(key),
            Invariant::FirstPayload => first_payload(key),
            Invariant::OneAtATime => self.one_at_a_time(key),
            Invariant::OwnWrites => self.own_writes(key),
            Invariant::Played => self.played(key),
        }
    }

    fn no_loss(&self, key: &KeyEvidence) -> Option<String> {
        let has = |cause: &str| key.letters.iter().any(|letter| letter == cause);
        match status(key) {
            Some(Status::Completed) => None,
            Some(Status::Failed) if has("failed") || has("redriven") => None,
            Some(Status::Unknown) if has("unknown") || has("redriven") => None,
            Some(status @ (Status::Failed | Status::Unknown)) => {
                Some(format!("{status}, and its message is no dead letter"))
            }
            // There is a message that may bring it to its end.
            _ if self.evidence.left > 0 || !key.letters.is_empty() => None,
            Some(status) => Some(format!("{status}, and its message is gone")),
            None => Some("its message is gone, and there is no record".to_owned()),
        }
    }

    fn no_wedge(&self, key: &KeyEvidence) -> Option<String> {
        // What is lost is told as that.
        if self.no_loss(key).is_some() {
            return None;
        }
        let wanted = end_of(key.key.scenario);
        match status(key) {
            Some(status) if status == wanted => None,
            // A worker that died for another key's sake leaves the same behind.
            Some(Status::Unknown) if self.died_in_call(key) => None,
            Some(status) => Some(format!("ends {status}, not {wanted}")),
            None => Some("it was never begun".to_owned()),
        }
    }

    /// Whether the worker died that made the one call of an at-most-once effect.
    fn died_in_call(&self, key: &KeyEvidence) -> bool {
        let of_dead =
            |row: &Row| self.deaths.get(row.worker.as_str()).is_some_and(|at| *at >= row.at);
        let is_it = key.key.scenario.effect() == Effect::AtMostOnce;
        is_it && calls(key).next().is_some_and(|(row, ..)| of_dead(row))
    }

    fn one_at_a_time(&self, key: &KeyEvidence) -> Option<String> {
        if key.key.scenario.is_brief() {
            let calls = calls(key).count();
            return (calls > 1).then(|| format!("{calls} calls, and no worker died"));
        }
        let mut live: Option<(u64, u64)> = None;
        for row in key.rows() {
            match &row.event {
                Event::Claimed { token, lease_until, .. } => {
                    if let Some((holder, until)) = live
                        && row.at < until + self.evidence.margin_ms
                    {
                        let early = until + self.evidence.margin_ms - row.at;
                        return Some(format!(
                            "token {token} took over from {holder} {early} ms before that may be"
                        ));
                    }
                    live = Some((*token, *lease_until));
                }
                Event::Renewed { token, lease_until } => {
                    live = live.map(|(holder, until)| match holder == *token {
                        true => (holder, *lease_until),
                        false => (holder, until),
                    });
                }
                Event::Settled { token, .. } => live = live.filter(|(holder, _)| holder != token),
                _ => {}
            }
        }
        None
    }

    fn own_writes(&self, key: &KeyEvidence) -> Option<String> {
        let at = key.rows().iter().position(|row| matches!(row.event, Event::AnswerLost { .. }))?;
        let (before, after) = key.rows().split_at(at + 1);
        let worker = before.last()?.worker.as_str();
        let again = after.iter().find(|row| matches!(row.event, Event::Claimed { .. }))?;
        // A worker that died for another key's sake could not go on.
        let died = self.deaths.get(worker).is_some_and(|died| *died <= again.at);
        let Event::Claimed { token, .. } = &again.event else { return None };
        (!died).then(|| {
            format!("claimed again with token {token}: its worker did not know its own write")
        })
    }

    fn played(&self, key: &KeyEvidence) -> Option<String> {
        let scenario = key.key.scenario;
        let is = |wanted: &dyn Fn(&Event) -> bool| key.rows().iter().any(|row| wanted(&row.event));
        let missing = |what: &str| Some(format!("it was not seen: {what}"));
        if let Some(point) = scenario.crash()
            && !is(&|event| matches!(event, Event::Crash { point: at } if *at == point))
        {
            return missing(point.says());
        }
        if let Some(write) = scenario.loses()
            && !is(&|event| matches!(event, Event::AnswerLost { to } if *to == write))
        {
            return missing(write.says());
        }
        if scenario.stalls() && !is(&|event| matches!(event, Event::WentOn { .. })) {
            return missing("the worker that stood still and went on");
        }
        if scenario.fails() && key.sent(Sent::Redriven) == 0 {
            return missing("the redrive");
        }
        if scenario == Scenario::LongJob
            && self.evidence.has_pollers
            && !is(&|event| matches!(event, Event::Renewed { .. }))
        {
            return missing("the renewal of its claim");
        }
        if key.sent(Sent::Copy) > 0 && !is(&|event| matches!(event, Event::Met { .. })) {
            return missing("a copy that met the record");
        }
        None
    }
}

/// How a scenario ends.
const fn end_of(scenario: Scenario) -> Status {
    match scenario {
        // Nobody can tell whether it happened.
        Scenario::KilledAtMostOnce => Status::Unknown,
        _ => Status::Completed,
    }
}

fn status(key: &KeyEvidence) -> Option<Status> {
    key.record.as_ref().map(|record| record.status)
}

/// Every call of the effect: its row, the provider's key and the request.
fn calls(key: &KeyEvidence) -> impl Iterator<Item = (&Row, &str, &str)> {
    key.rows().iter().filter_map(|row| match &row.event {
        Event::Called { key, request, .. } => Some((row, key.as_str(), request.as_str())),
        _ => None,
    })
}

fn staged_once(key: &KeyEvidence) -> Option<String> {
    let times = key.kept.staged;
    match (status(key), times) {
        (Some(Status::Completed), 1) => None,
        (Some(Status::Completed), n) => Some(format!("completed, and done {n} times")),
        (_, 0) => None,
        (_, n) => Some(format!("not completed, and done {n} times")),
    }
}

fn keyed_once(key: &KeyEvidence) -> Option<String> {
    let accepted = key.kept.accepted;
    let keys: BTreeSet<&str> = calls(key).map(|(_, key, _)| key).collect();
    let requests: BTreeSet<&str> = calls(key).map(|(_, _, request)| request).collect();
    if accepted > 1 {
        return Some(format!("done {accepted} times, under {} keys", keys.len()));
    }
    if keys.len() > 1 {
        return Some(format!("sent under {} keys", keys.len()));
    }
    if requests.len() > 1 {
        return Some(format!("{} requests under one key", requests.len()));
    }
    let is_done = status(key) == Some(Status::Completed);
    (is_done && accepted == 0).then(|| "completed, and never done".to_owned())
}

fn at_most_once(key: &KeyEvidence) -> Option<String> {
    let calls = calls(key).count();
    if calls > 1 {
        return Some(format!("called {calls} times"));
    }
    let is_done = status(key) == Some(Status::Completed);
    (is_done && calls == 0).then(|| "completed, and never called".to_owned())
}

fn fenced(key: &KeyEvidence) -> Option<String> {
    let (mut highest, mut completions) = (0, 0);
    for row in key.rows() {
        match &row.event {
            Event::Claimed { token, .. } if *token <= highest => {
                return Some(format!("token {token} was given after {highest}"));
            }
            Event::Claimed { token, .. } => highest = *token,
            Event::Settled { token, status } if *token < highest => {
                return Some(format!("token {token} wrote {status} when {highest} had the claim"));
            }
            Event::Settled { status, .. } if status == Status::Completed.as_str() => {
                completions += 1;
            }
            _ => {}
        }
    }
    if let Some(record) = key.record.as_ref().filter(|record| record.token.0 < highest) {
        return Some(format!("the record's token is {}, and {highest} was given", record.token.0));
    }
    (completions > 1).then(|| format!("{completions} completions"))
}

fn completed_stays(key: &KeyEvidence) -> Option<String> {
    let completed = Status::Completed.as_str();
    let is_end =
        |row: &&Row| matches!(&row.event, Event::Settled { status, .. } if status == completed);
    let at = key.rows().iter().position(|row| is_end(&row))?;
    let later = key.rows().get(at + 1..).unwrap_or_default();
    let again = later.iter().find_map(|row| match &row.event {
        Event::Claimed { token, .. } => Some(format!("claimed again, with token {token}")),
        _ => None,
    });
    let gone = || {
        let status = status(key).filter(|status| *status != Status::Completed)?;
        Some(format!("completed, and then {status}"))
    };
    again.or_else(gone)
}

fn first_payload(key: &KeyEvidence) -> Option<String> {
    let first = FIRST_AMOUNT.to_string();
    if calls(key).any(|(_, _, request)| request != first) {
        return Some("another payload has run".to_owned());
    }
    let (others, found) =
        (key.sent(Sent::Other), key.letters.iter().filter(|cause| *cause == "mismatch").count());
    (found != others).then(|| {
        format!("{others} messages with another payload, and {found} of them in quarantine")
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
