//! What a template lets a function do.

use serde_json::{Value, json};

use super::queues::physical;
use super::resolve::Scope;
use crate::ops::doctor::known::{Known, Untold};
use crate::ops::doctor::policy::{Policies, last};

/// AWS' own policies that functions are commonly given, without their versions.
fn of_aws(name: &str) -> Option<Value> {
    let logs = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"];
    let mut actions: Vec<&str> = logs.to_vec();
    match name {
        "AWSLambdaBasicExecutionRole" => {}
        "AWSLambdaSQSQueueExecutionRole" => {
            actions.extend(["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]);
        }
        "AWSLambdaVPCAccessExecutionRole" => actions.extend([
            "ec2:CreateNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:DeleteNetworkInterface",
            "ec2:AssignPrivateIpAddresses",
            "ec2:UnassignPrivateIpAddresses",
        ]),
        "AWSXRayDaemonWriteAccess" => {
            actions = vec!["xray:PutTraceSegments", "xray:PutTelemetryRecords"];
        }
        "AdministratorAccess" => actions = vec!["*"],
        "AmazonSQSFullAccess" => actions = vec!["sqs:*"],
        "AmazonDynamoDBFullAccess" => actions = vec!["dynamodb:*"],
        _ => return None,
    }
    Some(json!({ "Statement": { "Effect": "Allow", "Action": actions, "Resource": "*" } }))
}

impl Policies {
    fn add_managed(&mut self, arn: &str) {
        let name = arn.rsplit('/').next().unwrap_or(arn);
        match of_aws(name) {
            Some(document) => self.add(&document),
            None => self.unread.push(format!("what policy {name} allows is not in this template")),
        }
    }

    /// Names what is named once it is deployed as the facts do.
    fn settle(mut self, scope: &Scope<'_>) -> Self {
        for resource in self.statements.iter_mut().flat_map(|it| &mut it.resources) {
            let end = last(resource).to_owned();
            if end == *resource || end.ends_with(".Arn}") {
                continue;
            }
            if let Some((name, kind, properties)) = scope.resource_of(&end) {
                let field = if kind == "AWS::SQS::Queue" { "QueueName" } else { "TableName" };
                let before = resource.len() - end.len();
                let before = resource.get(..before).unwrap_or_default();
                *resource = format!("{before}{}", physical(scope, name, properties, field));
            }
        }
        self
    }
}

/// What the function with these properties may do.
pub(super) fn policies(scope: &Scope<'_>, properties: &Value) -> Known<Policies> {
    match scope.text(properties.get("Role")) {
        Known::Absent => Known::Is(of_sam(scope, properties)),
        role => role.and_then(|role| of_role(scope, &role)),
    }
}

fn documents(
    policies: &mut Policies,
    list: &Known<Value>,
    document: impl Fn(&Value) -> Option<&Value>,
) {
    match list {
        Known::Is(list) => {
            for found in list.as_array().into_iter().flatten().filter_map(document) {
                policies.add(found);
            }
        }
        Known::Absent => {}
        Known::Untold(Untold(why)) => policies.unread.push(why.clone()),
    }
}

fn of_role(scope: &Scope<'_>, role: &str) -> Known<Policies> {
    let Some((name, _, properties)) =
        scope.resource_of(role).filter(|(_, kind, _)| *kind == "AWS::IAM::Role")
    else {
        return Known::untold("the function's role is not made by this template");
    };
    let mut policies = Policies::default();
    let inline = scope.structure(properties.get("Policies"));
    documents(&mut policies, &inline, |it| it.get("PolicyDocument"));
    match scope.structure(properties.get("ManagedPolicyArns")) {
        Known::Is(arns) => texts(&arns).iter().for_each(|arn| policies.add_managed(arn)),
        Known::Absent => {}
        Known::Untold(Untold(why)) => policies.unread.push(why),
    }
    for (_, kind, other) in scope.resources() {
        let is_attached = |field: &str| {
            let roles = scope.structure(other.get(field));
            let mut roles = roles.is().into_iter().flat_map(texts);
            roles.any(|it| it == format!("${{{name}}}"))
        };
        let is_mine = match kind {
            "AWS::IAM::Policy" | "AWS::IAM::ManagedPolicy" => is_attached("Roles"),
            "AWS::IAM::RolePolicy" => is_attached("RoleName"),
            _ => false,
        };
        if is_mine && let Some(document) = scope.structure(other.get("PolicyDocument")).is() {
            policies.add(document);
        }
    }
    Known::Is(policies.settle(scope))
}

/// SAM makes the role, from what the function names and from its events.
fn of_sam(scope: &Scope<'_>, properties: &Value) -> Policies {
    let mut policies = Policies::default();
    policies.add_managed("AWSLambdaBasicExecutionRole");
    let has_queue = properties.get("Events").and_then(Value::as_object).is_some_and(|events| {
        events.values().any(|event| event.get("Type").and_then(Value::as_str) == Some("SQS"))
    });
    if has_queue {
        policies.add_managed("AWSLambdaSQSQueueExecutionRole");
    }
    match scope.structure(properties.get("Policies")) {
        Known::Is(Value::Array(list)) => list.iter().for_each(|it| of_sams(&mut policies, it)),
        Known::Is(one) => of_sams(&mut policies, &one),
        Known::Absent => {}
        Known::Untold(Untold(why)) => policies.unread.push(why),
    }
    policies.settle(scope)
}

fn of_sams(policies: &mut Policies, it: &Value) {
    match it {
        Value::String(managed) => policies.add_managed(managed),
        Value::Object(_) if it.get("Statement").is_some() => policies.add(it),
        Value::Object(template) => {
            let name = template.keys().next().map_or("", String::as_str);
            policies
                .unread
                .push(format!("what SAM's policy template {name} allows is not read here"));
        }
        _ => {}
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
