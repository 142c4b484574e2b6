//! Rules of what the worker may do, next to the policy that is shipped.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use super::{FINE, Judged, one};
use crate::ops::doctor::facts::{Deployment, Place, StoreFacts};
use crate::ops::doctor::known::Untold;
use crate::ops::doctor::policy::{Policies, Statement, last};

/// What is shipped for the worker.
static SHIPPED: LazyLock<Policies> = LazyLock::new(|| {
    let mut policies = Policies::default();
    let text = include_str!("../../../../infra/iam/worker.json");
    policies.add(&serde_json::from_str::<Value>(text).unwrap_or_default());
    policies
});

/// What a worker does without: it falls back.
const SPARE: [&str; 4] = [
    "dynamodb:PartiQLInsert",
    "dynamodb:PartiQLUpdate",
    "dynamodb:BatchGetItem",
    // Whoever made the log group before.
    "logs:CreateLogGroup",
];

/// What a function may need of its platform, or of keys of one's own: mostly on no resource.
const OF_THE_PLATFORM: [&str; 10] = [
    "xray:puttracesegments",
    "xray:puttelemetryrecords",
    "ec2:createnetworkinterface",
    "ec2:describenetworkinterfaces",
    "ec2:describesubnets",
    "ec2:deletenetworkinterface",
    "ec2:assignprivateipaddresses",
    "ec2:unassignprivateipaddresses",
    "kms:decrypt",
    "kms:generatedatakey",
];

/// How many details a finding has.
const SHOWN: usize = 5;

fn shipped(sid: &str) -> impl Iterator<Item = &'static str> {
    let named = SHIPPED.statements.iter().filter(move |it| it.sid.as_deref() == Some(sid));
    named.flat_map(|it| &it.actions).map(String::as_str).filter(|it| !SPARE.contains(it))
}

/// What it needs, and on what.
fn needed(deployment: &Deployment) -> Result<Vec<(&'static str, Option<&Place>)>, Untold> {
    let mut needed = Vec::new();
    if let Some(StoreFacts::DynamoDb(place, _)) = deployment.store.told()? {
        needed.extend(shipped("Claims").map(|action| (action, Some(place))));
    }
    if let Some(queue) = deployment.queue.told()? {
        needed.extend(shipped("Jobs").map(|action| (action, Some(&queue.place))));
        if let Some(key) = queue.key.told()? {
            // Of an alias it is not known which key it is.
            let key = Some(key).filter(|key| !key.name.starts_with("alias/"));
            needed.push(("kms:Decrypt", key));
        }
    }
    if let Some(place) = deployment.quarantine.told()? {
        needed.extend(shipped("Quarantine").map(|action| (action, Some(place))));
    }
    needed.extend(shipped("Logs").map(|action| (action, None)));
    if let Some(jobs) = deployment.jobs.is() {
        for effect in jobs.jobs.iter().filter_map(|job| job.effect.as_deref()) {
            let action = match effect {
                "lambda" => "lambda:InvokeFunction",
                "sqs" => "sqs:SendMessage",
                "sns" => "sns:Publish",
                "eventbridge" => "events:PutEvents",
                _ => continue,
            };
            if !needed.contains(&(action, None)) {
                needed.push((action, None));
            }
        }
    }
    Ok(needed)
}

pub fn missing(deployment: &Deployment) -> Judged {
    let Some(role) = deployment.role.told()? else { return FINE };
    let mut missing = Vec::new();
    for (action, place) in needed(deployment)? {
        if role.allows(action, place) {
            continue;
        }
        if let Some(unread) = role.unread.first() {
            return Err(Untold(unread.clone()));
        }
        if role.is_vague_on(action) {
            return Err(Untold(format!(
                "on what {action} is allowed is known once it is deployed"
            )));
        }
        missing.push(match place {
            Some(place) => format!("{action} on {}", place.shown()),
            None => action.to_owned(),
        });
    }
    if missing.is_empty() {
        return FINE;
    }
    one(
        format!("the function's role does not allow {}", missing.join(", ")),
        "give the role what infra/iam/worker.json allows",
    )
}

pub fn wide(deployment: &Deployment) -> Judged {
    let Some(role) = deployment.role.told()? else { return FINE };
    let wide: BTreeSet<String> =
        role.statements.iter().filter(|it| it.is_allow).flat_map(too_wide).collect();
    if !wide.is_empty() {
        let shown: Vec<_> = wide.iter().take(SHOWN).cloned().collect();
        let more = wide.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        return one(
            format!("the function's role allows {}{more}", shown.join(", ")),
            "leave what infra/iam/worker.json allows, on the ARNs of this deployment, and what your \
             own handlers call",
        );
    }
    match role.unread.first() {
        Some(unread) => Err(Untold(unread.clone())),
        None => FINE,
    }
}

/// What of a statement is more than a worker's.
fn too_wide(statement: &Statement) -> Vec<String> {
    if statement.is_but_actions || statement.is_but_resources {
        return vec!["everything but what it names".to_owned()];
    }
    let known = |action: &str| {
        OF_THE_PLATFORM.contains(&action)
            || SHIPPED
                .statements
                .iter()
                .flat_map(|it| &it.actions)
                .any(|it| it.eq_ignore_ascii_case(action))
    };
    // A log's lines harm nobody, and functions are often given all logs.
    let is_harmless =
        |action: &str| action.starts_with("logs:") || OF_THE_PLATFORM.contains(&action);
    let anywhere = statement.resources.iter().find(|it| matches!(last(it), "*" | ""));
    let mut found = Vec::new();
    for action in &statement.actions {
        let plain = action.to_ascii_lowercase();
        match anywhere {
            _ if plain.contains('*') || !known(&plain) => found.push(action.clone()),
            Some(resource) if !is_harmless(&plain) => found.push(format!("{action} on {resource}")),
            _ => {}
        }
    }
    found
}
