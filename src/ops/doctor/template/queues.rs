//! The queues of a template.

use std::time::Duration;

use serde_json::Value;

use super::resolve::Scope;
use crate::ops::doctor::facts::{DeadLetters, Place, Queue, Redrive};
use crate::ops::doctor::known::Known;
use crate::ops::doctor::policy::last;

const KIND: &str = "AWS::SQS::Queue";

/// How long SQS hides and keeps messages where nothing is said.
const VISIBILITY: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(4 * 24 * 3600);

/// What a resource is called once it is there: its own name for it, or the template's.
pub(super) fn physical(scope: &Scope<'_>, name: &str, properties: &Value, field: &str) -> String {
    match scope.text(properties.get(field)) {
        Known::Is(given) if !given.contains("${") => given,
        _ => format!("${{{name}}}"),
    }
}

/// The queue that a reference, an ARN or a URL leads to, and its properties if it is made here.
fn find<'t>(scope: &Scope<'t>, text: &str) -> (Place, Option<&'t Value>) {
    let name_of = |name: &str, properties: &Value| physical(scope, name, properties, "QueueName");
    let made = scope.resource_of(text).filter(|(_, kind, _)| *kind == KIND);
    let name = last(text).rsplit('/').next().unwrap_or_default();
    let made = made.or_else(|| {
        scope
            .resources()
            .find(|(found, kind, properties)| *kind == KIND && name_of(found, properties) == name)
    });
    match made {
        Some((name, _, properties)) => {
            let arn = Some(format!("${{{name}.Arn}}"));
            (Place { name: name_of(name, properties), arn }, Some(properties))
        }
        None => {
            let is_whole = text.starts_with("arn:") && !text.contains("${");
            let arn = is_whole.then(|| text.to_owned());
            (Place { name: name.to_owned(), arn }, None)
        }
    }
}

pub(super) fn place(scope: &Scope<'_>, text: &str) -> Place {
    find(scope, text).0
}

fn outside(place: &Place) -> String {
    format!("queue {} is not made by this template", place.shown())
}

fn is_fifo(scope: &Scope<'_>, place: &Place, properties: Option<&Value>) -> Known<bool> {
    match properties {
        None => Known::Is(place.name.ends_with(".fifo")),
        Some(properties) => scope.flag(properties.get("FifoQueue")).or(false),
    }
}

fn seconds(scope: &Scope<'_>, value: Option<&Value>, default: Duration) -> Known<Duration> {
    scope.number(value).map(Duration::from_secs).or(default)
}

pub(super) fn queue(scope: &Scope<'_>, text: &str) -> Queue {
    let (place, properties) = find(scope, text);
    let is_fifo = is_fifo(scope, &place, properties);
    let Some(properties) = properties else {
        let why = outside(&place);
        return Queue {
            place,
            is_fifo,
            visibility: Known::untold(&*why),
            retention: Known::untold(&*why),
            redrive: Known::untold(&*why),
            key: Known::untold(why),
        };
    };
    Queue {
        place,
        is_fifo,
        visibility: seconds(scope, properties.get("VisibilityTimeout"), VISIBILITY),
        retention: seconds(scope, properties.get("MessageRetentionPeriod"), RETENTION),
        redrive: redrive(scope, properties.get("RedrivePolicy")),
        key: key(scope, properties.get("KmsMasterKeyId")),
    }
}

fn key(scope: &Scope<'_>, id: Option<&Value>) -> Known<Place> {
    scope.text(id).and_then(|id| {
        let made = scope.resource_of(&id).filter(|(_, kind, _)| *kind == "AWS::KMS::Key");
        Place::key(&made.map_or(id, |(name, ..)| format!("${{{name}.Arn}}"))).into()
    })
}

fn redrive(scope: &Scope<'_>, policy: Option<&Value>) -> Known<Redrive> {
    scope.structure(policy).and_then(|policy| {
        scope.text(policy.get("deadLetterTargetArn")).map(|target| Redrive {
            target: place(scope, &target),
            max_receive: scope.number(policy.get("maxReceiveCount")),
        })
    })
}

/// The queue that a redrive policy leads to.
pub(super) fn dead_letters(scope: &Scope<'_>, redrive: &Known<Redrive>) -> Known<DeadLetters> {
    redrive.clone().map(|redrive| {
        let text = redrive.target.arn.as_deref().unwrap_or(&redrive.target.name);
        let (place, properties) = find(scope, text);
        let retention = match properties {
            Some(properties) => seconds(scope, properties.get("MessageRetentionPeriod"), RETENTION),
            None => Known::untold(outside(&place)),
        };
        DeadLetters { is_fifo: is_fifo(scope, &place, properties), retention }
    })
}
