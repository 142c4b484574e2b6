//! What was found, for people and for programs.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::checklist::{Point, Verdict};
use super::finding::{Finding, Severity};

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    pub deployments: Vec<String>,
    pub faults: usize,
    pub warnings: usize,
    pub cannot_judge: usize,
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checklist: Option<Vec<Point>>,
}

impl Report {
    pub fn new(
        deployments: Vec<String>,
        mut findings: Vec<Finding>,
        checklist: Option<Vec<Point>>,
    ) -> Self {
        findings.sort_by_key(|it| it.severity);
        // Of a function, or a table, that has several queues it is told once.
        let mut told = BTreeSet::new();
        findings.retain(|it| told.insert((it.severity, it.code, it.what.clone())));
        let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
        Self {
            deployments,
            faults: count(Severity::Fault),
            warnings: count(Severity::Warning),
            cannot_judge: count(Severity::CannotJudge),
            findings,
            checklist,
        }
    }

    /// Whether it is worth an exit status of 1.
    pub fn is_bad(&self, is_strict: bool) -> bool {
        self.faults > 0 || is_strict && self.warnings > 0
    }

    pub fn print(&self) {
        match &self.checklist {
            Some(points) => print_points(points),
            None => self.print_findings(),
        }
        println!(
            "{}: {}, {}, {} that cannot be judged here",
            self.deployments.join(", "),
            counted(self.faults, "fault"),
            counted(self.warnings, "warning"),
            counted(self.cannot_judge, "rule")
        );
    }

    fn print_findings(&self) {
        for (severity, title) in [(Severity::Fault, "faults"), (Severity::Warning, "warnings")] {
            let found: Vec<_> = self.findings.iter().filter(|it| it.severity == severity).collect();
            if found.is_empty() {
                continue;
            }
            let mut table = table(&["what is so", "why it bites", "what to do"]);
            for Finding { code, deployment, what, why, fix, .. } in found {
                let of = if self.deployments.len() > 1 {
                    format!(" ({deployment})")
                } else {
                    String::new()
                };
                table.add_row([format!("{code}{of}: {what}"), (*why).to_owned(), fix.clone()]);
            }
            println!("{title}\n{table}");
        }
        let mut open: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for it in self.findings.iter().filter(|it| it.severity == Severity::CannotJudge) {
            let codes = open.entry(&it.what).or_default();
            if !codes.contains(&it.code) {
                codes.push(it.code);
            }
        }
        if !open.is_empty() {
            let mut table = table(&["because", "these cannot be judged"]);
            for (because, codes) in open {
                table.add_row([because, &codes.join(", ")]);
            }
            println!("cannot judge\n{table}");
        }
    }
}

fn print_points(points: &[Point]) {
    let mut table = table(&["", "question", "verdict"]);
    for Point { point, question, verdict, why } in points {
        table.add_row([
            point.to_string(),
            (*question).to_owned(),
            format!("{}: {why}", Verdict::text(*verdict)),
        ]);
    }
    println!("{table}");
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}

fn counted(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
