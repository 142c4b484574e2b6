//! The report as one page that needs nothing beside itself.

use std::fmt::Write as _;

use super::report::{KeyReport, Report};
use super::svg;
use super::text::seconds;

const STYLE: &str = include_str!("page.css");

/// What the marks mean: a drawing of 16 by 16, and words.
const LEGEND: [(&str, &str); 15] = [
    ("<path class=\"sent\" d=\"M3 3L13 3L8 13Z\"/>", "message sent"),
    ("<path class=\"other\" d=\"M3 3L13 3L8 13Z\"/>", "with another payload"),
    ("<path class=\"redriven\" d=\"M3 3L13 3L8 13Z\"/>", "redriven"),
    ("<circle class=\"met\" cx=\"8\" cy=\"8\" r=\"5\"/>", "copy waits"),
    ("<circle class=\"met done\" cx=\"8\" cy=\"8\" r=\"5\"/>", "copy finds it done"),
    ("<circle class=\"acked\" cx=\"8\" cy=\"8\" r=\"5\"/>", "last one acknowledged"),
    ("<circle class=\"called\" cx=\"8\" cy=\"8\" r=\"4\"/>", "effect called"),
    ("<path class=\"did\" d=\"M8 2l6 6l-6 6l-6 -6Z\"/>", "done by the provider"),
    ("<path class=\"knew\" d=\"M8 2l6 6l-6 6l-6 -6Z\"/>", "key known, nothing done"),
    ("<path class=\"crash\" d=\"M3 3l10 10m0 -10l-10 10\"/>", "worker dies"),
    (
        "<line class=\"lease\" x1=\"0\" x2=\"16\" y1=\"8\" y2=\"8\"/>",
        "a dead worker's lease, still believed",
    ),
    ("<circle class=\"lost\" cx=\"8\" cy=\"8\" r=\"6\"/>", "answer lost"),
    ("<rect class=\"stalled\" x=\"0\" y=\"5\" width=\"16\" height=\"6\"/>", "stands still"),
    ("<path class=\"late\" d=\"M3 3l10 10m0 -10l-10 10\"/>", "late write refused"),
    ("<circle class=\"completed\" cx=\"8\" cy=\"8\" r=\"6\"/>", "completed"),
];

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>onlyonce drill {}</title><style>{STYLE}</style></head><body><main>",
        escaped(&report.run)
    );
    head(&mut out, report);
    if let Some(load) = &report.load {
        let _ = write!(out, "<h2>Load</h2><div class=\"figures\">");
        for (value, name) in [
            (load.messages.to_string(), "messages"),
            (load.keys.to_string(), "keys"),
            (format!("{}", load.jobs_per_second), "jobs a second"),
            (format!("{}", load.messages_per_second), "messages a second"),
            (format!("{} ms", load.p50_ms), "sent to done, p50"),
            (format!("{} ms", load.p95_ms), "p95"),
            (format!("{} ms", load.p99_ms), "p99"),
            (load.double_calls.to_string(), "double calls"),
            (load.double_effects.to_string(), "double effects"),
        ] {
            figure(&mut out, &value, name);
        }
        out.push_str("</div>");
    }
    invariants(&mut out, report);
    scenarios(&mut out, report);
    out.push_str("<h2>What happened to each key</h2><div class=\"legend\">");
    for (drawing, words) in LEGEND {
        let _ = write!(out, "<span><svg viewBox=\"0 0 16 16\">{drawing}</svg>{words}</span>");
    }
    out.push_str("</div>");
    report.keys.iter().for_each(|told| key(&mut out, told));
    verdict(&mut out, report);
    out.push_str("</main></body></html>\n");
    out
}

fn head(out: &mut String, report: &Report) {
    let _ = write!(
        out,
        "<h1>onlyonce drill</h1><p class=\"soft\">run {} on {}, {}</p>",
        escaped(&report.run),
        escaped(&report.place),
        escaped(&report.began)
    );
    verdict(out, report);
    let sum = |of: &dyn Fn(&super::report::ScenarioReport) -> usize| {
        report.scenarios.iter().map(of).sum::<usize>().to_string()
    };
    out.push_str("<div class=\"figures\">");
    for (value, name) in [
        (seconds(report.took_ms), "took"),
        (sum(&|it| it.keys), "keys"),
        (sum(&|it| it.sent), "messages sent"),
        (sum(&|it| it.crashes), "workers killed"),
        (sum(&|it| it.calls), "effects called"),
        (sum(&|it| it.effects), "effects done"),
    ] {
        figure(out, &value, name);
    }
    out.push_str("</div>");
}

fn verdict(out: &mut String, report: &Report) {
    let class = if report.holds { "good" } else { "bad" };
    let _ = write!(out, "<p class=\"verdict {class}\">{}</p>", escaped(&report.verdict()));
}

fn figure(out: &mut String, value: &str, name: &str) {
    let (value, name) = (escaped(value), escaped(name));
    let _ =
        write!(out, "<div class=\"figure\"><b>{value}</b><span class=\"soft\">{name}</span></div>");
}

fn invariants(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>Invariants</h2><table><tr><th></th><th class=\"n\">No</th><th>Name</th>\
         <th>What it says</th><th class=\"n\">Keys</th></tr>",
    );
    for it in &report.invariants {
        let (class, word) = if it.holds { ("ok", "holds") } else { ("fail", "broken") };
        let number = it.number.map(|number| number.to_string()).unwrap_or_default();
        let _ = write!(
            out,
            "<tr><td><span class=\"{class}\">{word}</span></td><td class=\"n\">{number}</td>\
             <td>{}</td><td>{}",
            it.name, it.says
        );
        for fault in it.told() {
            let _ = write!(out, "<div class=\"fault\">{}</div>", escaped(&fault));
        }
        let _ = write!(out, "</td><td class=\"n\">{}</td></tr>", it.keys);
    }
    out.push_str("</table>");
}

fn scenarios(out: &mut String, report: &Report) {
    out.push_str("<h2>Scenarios</h2><table><tr><th>Scenario</th><th>What is played</th>");
    for name in ["Keys", "Sent", "Claims", "Killed", "Calls", "Effects"] {
        let _ = write!(out, "<th class=\"n\">{name}</th>");
    }
    out.push_str("<th>Ends</th></tr>");
    for it in &report.scenarios {
        let _ = write!(out, "<tr><td>{}</td><td class=\"soft\">{}</td>", it.scenario, it.says);
        for figure in [it.keys, it.sent, it.claims, it.crashes, it.calls, it.effects] {
            let _ = write!(out, "<td class=\"n\">{figure}</td>");
        }
        let mut ends: Vec<String> =
            it.ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
        if it.dead_letters > 0 {
            ends.push(format!("{} dead letters", it.dead_letters));
        }
        let _ = write!(out, "<td>{}</td></tr>", escaped(&ends.join(", ")));
    }
    out.push_str("</table>");
}

fn key(out: &mut String, key: &KeyReport) {
    let class = if key.faults.is_empty() { "key" } else { "key broken" };
    let ends = key.ends.as_deref().unwrap_or("no record");
    let dead = match key.dead_letters.as_slice() {
        [] => String::new(),
        causes => format!(", dead letters: {}", causes.join(", ")),
    };
    let _ = write!(
        out,
        "<section class=\"{class}\"><header><h3>{}</h3><span class=\"soft\">{}; {}{}</span></header>",
        escaped(&key.key),
        key.scenario.says(),
        escaped(ends),
        escaped(&dead)
    );
    for fault in &key.faults {
        let _ = write!(out, "<div class=\"fault\">{}</div>", escaped(fault));
    }
    out.push_str(&svg::draw(key));
    let count = key.events.len();
    let _ = write!(out, "<details><summary>{count} events</summary><ol>");
    for moment in &key.events {
        let _ = write!(out, "<li><b>{} ms</b>{}", moment.at_ms, escaped(&moment.text));
        if let Some(worker) = &moment.worker {
            let _ = write!(out, "<i>worker {}</i>", escaped(worker));
        }
        out.push_str("</li>");
    }
    out.push_str("</ol></details></section>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
