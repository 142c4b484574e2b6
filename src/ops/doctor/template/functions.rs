//! The functions of a template, and the event sources that lead to them.

use std::time::Duration;

use serde_json::{Map, Value};

use super::resolve::Scope;
use crate::ops::doctor::environment::Environment;
use crate::ops::doctor::facts::{Function, Source};
use crate::ops::doctor::known::Known;

pub(super) const KINDS: [&str; 2] = ["AWS::Serverless::Function", "AWS::Lambda::Function"];

/// How long a function runs where nothing is said.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How many messages Lambda takes at once where nothing is said.
const BATCH: u64 = 10;

/// A function that serves a queue.
pub(super) struct Served<'t> {
    pub name: &'t str,
    /// With what the template says of all functions.
    pub properties: Value,
    pub environment: Environment,
    /// A reference or an ARN.
    pub queue: Known<String>,
    pub source: Source,
}

/// Every function behind a queue.
pub(super) fn served<'t>(scope: &Scope<'t>) -> Vec<Served<'t>> {
    let mut found = Vec::new();
    for (name, kind, properties) in scope.resources() {
        if KINDS.contains(&kind) {
            let properties = whole(scope, kind, properties);
            let events = properties.get("Events").and_then(Value::as_object).cloned();
            for event in events.unwrap_or_default().values() {
                if event.get("Type").and_then(Value::as_str) != Some("SQS") {
                    continue;
                }
                let event = event.get("Properties").unwrap_or(&Value::Null);
                found.push(serves(scope, name, &properties, event, "Queue"));
            }
        }
        if kind == "AWS::Lambda::EventSourceMapping" && is_of_a_queue(scope, properties) {
            let function = scope.text(properties.get("FunctionName"));
            let function = function.is().and_then(|function| scope.resource_of(function));
            let Some((name, kind, of_function)) = function else { continue };
            let of_function = whole(scope, kind, of_function);
            found.push(serves(scope, name, &of_function, properties, "EventSourceArn"));
        }
    }
    found
}

/// Streams begin somewhere; queues do not.
fn is_of_a_queue(scope: &Scope<'_>, properties: &Value) -> bool {
    let arn = scope.text(properties.get("EventSourceArn"));
    properties.get("StartingPosition").is_none()
        && arn.is().is_none_or(|arn| {
            arn.contains(":sqs:")
                || scope.resource_of(arn).is_some_and(|(_, kind, _)| kind == "AWS::SQS::Queue")
        })
}

fn serves<'t>(
    scope: &Scope<'t>,
    name: &'t str,
    properties: &Value,
    event: &Value,
    queue: &str,
) -> Served<'t> {
    Served {
        name,
        properties: properties.clone(),
        environment: environment(scope, properties),
        queue: scope.text(event.get(queue)),
        source: source(scope, event),
    }
}

/// A function's own properties over those that SAM gives to all.
fn whole(scope: &Scope<'_>, kind: &str, properties: &Value) -> Value {
    let of_all = scope.template().pointer("/Globals/Function").and_then(Value::as_object);
    match (kind, of_all, properties.as_object()) {
        ("AWS::Serverless::Function", Some(of_all), Some(own)) => {
            Value::Object(merged(of_all, own))
        }
        _ => properties.clone(),
    }
}

fn merged(under: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = under.clone();
    for (name, value) in over {
        let value = match (merged.get(name), value) {
            (Some(Value::Object(under)), Value::Object(over)) => {
                Value::Object(self::merged(under, over))
            }
            (_, value) => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    merged
}

fn environment(scope: &Scope<'_>, properties: &Value) -> Environment {
    match scope.structure(properties.pointer("/Environment/Variables")) {
        Known::Is(variables) => Environment::read(|name| scope.text(variables.get(name))),
        Known::Absent => Environment::read(|_| Known::Absent),
        Known::Untold(why) => Environment::read(|_| Known::Untold(why.clone())),
    }
}

fn source(scope: &Scope<'_>, event: &Value) -> Source {
    let types = scope.structure(event.get("FunctionResponseTypes"));
    let scaling = scope.structure(event.get("ScalingConfig"));
    let maximum = scaling.and_then(|scaling| scope.number(scaling.get("MaximumConcurrency")));
    let batch = scope.number(event.get("BatchSize")).or(BATCH);
    let window = scope.number(event.get("MaximumBatchingWindowInSeconds"));
    Source {
        batch,
        window: window.map(Duration::from_secs),
        reports_failures: types.map(|types| {
            let types = types.as_array().into_iter().flatten();
            types.filter_map(Value::as_str).any(|it| it == "ReportBatchItemFailures")
        }),
        maximum_concurrency: maximum,
    }
}

pub(super) fn function(scope: &Scope<'_>, served: &Served<'_>) -> Function {
    let timeout =
        scope.number(served.properties.get("Timeout")).map(Duration::from_secs).or(TIMEOUT);
    Function {
        timeout,
        reserved: scope.number(served.properties.get("ReservedConcurrentExecutions")),
        fault: served.environment.fault.clone(),
    }
}
