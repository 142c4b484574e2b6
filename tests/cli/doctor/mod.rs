//! `doctor` on what is deployed, on templates, and on stores, with each fault planted by itself.

mod live;
mod site;
mod stores;
mod templates;

use std::process::Command;

use serde_json::Value;

use crate::{root, run};

/// The command, whose store is what it looks at, if that is given.
fn doctor(words: &[&str], store: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.current_dir(root()).arg("doctor");
    if let Some(store) = store {
        command.env("ONLYONCE_STORE", store);
    }
    run(&mut command, words)
}

/// What it found: codes by severity, in order; and its exit status.
struct Found {
    code: Option<i32>,
    said: String,
    report: Value,
}

impl Found {
    fn by(words: &[&str], store: Option<&str>) -> Self {
        let words = [words, &["--json"]].concat();
        let (code, said) = doctor(&words, store);
        let report = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        Self { code, said, report }
    }

    /// The codes of a severity.
    fn codes(&self, severity: &str) -> Vec<&str> {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let found = findings.filter(|it| it["severity"] == severity);
        let mut codes: Vec<_> = found.map(|it| it["code"].as_str().unwrap()).collect();
        codes.dedup();
        codes
    }

    /// The codes of what is wrong.
    fn wrong(&self) -> Vec<&str> {
        [self.codes("fault"), self.codes("warning")].concat()
    }
}
