//! Metrics as log lines that CloudWatch reads: its Embedded Metric Format.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::meter::{Count, Latency, Meter};
use crate::protocol::Timestamp;

/// Values of one metric in one line: CloudWatch takes no more, and drops the line for it.
const MOST_VALUES: usize = 100;
const NAMESPACE: &str = "onlyonce";

/// Writes what a [`Meter`] has noted, as lines of the Embedded Metric Format in the namespace
/// `onlyonce`, by `Service`; what is in quarantine by `Cause` as well.
#[derive(Debug)]
pub struct Emf {
    service: String,
    told: Mutex<[u64; Count::ALL.len()]>,
}

impl Emf {
    /// For the service of this name.
    pub fn new(service: impl Into<String>) -> Self {
        Self { service: service.into(), told: Mutex::default() }
    }

    /// Writes to the standard output what has not been written yet: one line, further ones where
    /// it has more values or causes than one line takes, and none if there is nothing.
    pub fn flush(&self, meter: &Meter, now: Timestamp) {
        self.write(meter, now, &mut std::io::stdout().lock());
    }

    fn write(&self, meter: &Meter, now: Timestamp, to: &mut dyn Write) {
        let counts = self.untold(meter);
        let mut causes = counts.iter().filter(|((_, cause), _)| cause.is_some());
        let mut plain = counts.iter().filter(|((_, cause), _)| cause.is_none());
        let mut series = Latency::ALL.map(|latency| (latency.name(), meter.take(latency)));
        loop {
            let mut line = Line::new(self, now);
            for ((name, _), count) in plain.by_ref() {
                line.add(name, "Count", (*count).into());
            }
            for (name, values) in &mut series {
                let values: Vec<u32> = values.by_ref().take(MOST_VALUES).collect();
                if !values.is_empty() {
                    line.add(name, "Milliseconds", values.into());
                }
            }
            // A line has one value of a dimension.
            if let Some(((name, Some(cause)), count)) = causes.next() {
                line.add_by_cause(name, cause, *count);
            }
            let Some(mut text) = line.text() else {
                return;
            };
            text.push('\n');
            // Whoever has closed the output does not want to know.
            if to.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// The counts that have grown, and by how much.
    fn untold(&self, meter: &Meter) -> Vec<((&'static str, Option<&'static str>), u64)> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = meter.counts();
        let grown = Count::ALL.iter().zip(counts.iter().zip(told.iter()));
        let grown = grown.map(|(count, (now, before))| (count.name(), now.saturating_sub(*before)));
        let grown = grown.filter(|(_, by)| *by > 0).collect();
        *told = counts;
        grown
    }
}

/// One line in the making.
struct Line {
    now: Timestamp,
    members: Map<String, Value>,
    metrics: Vec<Value>,
    by_cause: Vec<Value>,
}

impl Line {
    fn new(of: &Emf, now: Timestamp) -> Self {
        let members = [("Service".to_owned(), of.service.as_str().into())];
        let members = members.into_iter().collect();
        Self { now, members, metrics: Vec::new(), by_cause: Vec::new() }
    }

    fn add(&mut self, name: &str, unit: &str, value: Value) {
        self.members.insert(name.to_owned(), value);
        self.metrics.push(json!({ "Name": name, "Unit": unit }));
    }

    fn add_by_cause(&mut self, name: &str, cause: &str, count: u64) {
        self.members.insert("Cause".to_owned(), cause.into());
        self.members.insert(name.to_owned(), count.into());
        self.by_cause.push(json!({ "Name": name, "Unit": "Count" }));
    }

    /// `None` if there is nothing in it.
    fn text(mut self) -> Option<String> {
        let directive = |dimensions: Value, metrics: Vec<Value>| {
            (!metrics.is_empty()).then(
                || json!({ "Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": metrics }),
            )
        };
        let directives: Vec<Value> = [
            directive(json!([["Service"]]), self.metrics),
            directive(json!([["Service"], ["Service", "Cause"]]), self.by_cause),
        ]
        .into_iter()
        .flatten()
        .collect();
        if directives.is_empty() {
            return None;
        }
        let about = json!({ "Timestamp": self.now.millis(), "CloudWatchMetrics": directives });
        self.members.insert("_aws".to_owned(), about);
        Some(Value::Object(self.members).to_string())
    }
}

#[cfg(test)]
#[path = "emf_tests.rs"]
mod tests;
