//! The report in words: what each event means, and the whole of it for a terminal.

use std::fmt;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use super::report::Report;
use crate::drill::Event;

/// What an event means.
pub(super) fn event(event: &Event) -> String {
    match event {
        Event::Claimed { token: 1, .. } => "claimed, token 1".to_owned(),
        Event::Claimed { token, attempt, .. } => {
            format!("taken over, token {token}, attempt {attempt}")
        }
        Event::Met { status } => match status.as_str() {
            "completed" => "a copy: it is done, acknowledged".to_owned(),
            "claimed" => "a copy: somebody has it, come back later".to_owned(),
            other => format!("a delivery: the record is {other}"),
        },
        Event::Renewed { token, .. } => format!("claim renewed, token {token}"),
        Event::Called { token, .. } => format!("effect called, token {token}"),
        Event::Answered { is_first: true, .. } => "the provider did it".to_owned(),
        Event::Answered { .. } => "the provider knew the key, and did nothing".to_owned(),
        Event::Settled { token, status } => format!("{status}, token {token}"),
        Event::Refused { token } => format!("the write of token {token} is refused: too late"),
        Event::Crash { point } => point.says().to_owned(),
        Event::AnswerLost { to } => to.says().to_owned(),
        Event::Stalled { .. } => "the worker stands still".to_owned(),
        Event::WentOn { token } => format!("it goes on, and completes with token {token}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header([
            "scenario", "keys", "sent", "claims", "crashes", "calls", "effects", "ends",
        ]);
        for it in &self.scenarios {
            let figures = [it.keys, it.sent, it.claims, it.crashes, it.calls, it.effects];
            let mut ends: Vec<String> = match it.ends.len() {
                1 => it.ends.keys().cloned().collect(),
                _ => it.ends.iter().map(|(end, count)| format!("{count} {end}")).collect(),
            };
            if it.dead_letters > 0 {
                ends.push(format!("{} dead", it.dead_letters));
            }
            let mut figures = figures.map(|figure| figure.to_string());
            if it.scenario.is_brief()
                && let [_, _, claims, crashes, ..] = &mut figures
            {
                "-".clone_into(claims);
                "-".clone_into(crashes);
            }
            let row = std::iter::once(it.scenario.to_string()).chain(figures);
            table.add_row(row.chain([ends.join(", ")]));
        }
        writeln!(f, "{table}\n")?;
        if let Some(load) = &self.load {
            writeln!(
                f,
                "{} messages for {} keys sent in {}; done {}, {} jobs/s; drained {}, {} messages/s",
                load.messages,
                load.keys,
                seconds(load.sent_ms),
                seconds(load.done_ms),
                load.jobs_per_second,
                seconds(load.drained_ms),
                load.messages_per_second
            )?;
            writeln!(
                f,
                "sent to done: p50 {} ms, p95 {} ms, p99 {} ms, longest {} ms",
                load.p50_ms, load.p95_ms, load.p99_ms, load.longest_ms
            )?;
            writeln!(f, "doubles: {} calls, {} effects\n", load.double_calls, load.double_effects)?;
        }
        for it in &self.invariants {
            let number = it.number.map_or_else(|| "  ".to_owned(), |number| format!("{number:>2}"));
            let verdict = if it.holds { "ok  " } else { "FAIL" };
            writeln!(f, "{verdict} {number} {:<18} {} ({} keys)", it.name, it.says, it.keys)?;
            let told: Vec<_> = it.told().collect();
            for fault in &told {
                writeln!(f, "          {fault}")?;
            }
            if it.broken > told.len() {
                writeln!(f, "          and {} more", it.broken - told.len())?;
            }
        }
        let died = match self.workers_died {
            Some(died) => format!(", {died} workers died and were replaced"),
            None => String::new(),
        };
        writeln!(f, "\nrun {} on {}: {}{died}", self.run, self.place, seconds(self.took_ms))?;
        write!(f, "{}", self.verdict())
    }
}

impl Report {
    /// The last line.
    pub fn verdict(&self) -> String {
        match self.holds {
            true => "HOLDS: every invariant, whatever went wrong".to_owned(),
            false => format!("BROKEN: {}", self.broken.join(", ")),
        }
    }
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
