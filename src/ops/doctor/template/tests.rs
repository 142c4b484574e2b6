//! Expressions of templates, and what is read of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::parameters::{Parameter, unknown};
use super::resolve::Scope;
use super::{deployments, yaml};
use crate::ops::doctor::facts::{Deployment, StoreFacts};
use crate::ops::doctor::known::Known;

const EXPRESSIONS: &str = r#"
Parameters:
  Given: {Type: String}
  Size: {Type: Number, Default: 30}
  List: {Type: CommaDelimitedList, Default: "a, b"}
  Secret: {Type: "AWS::SSM::Parameter::Value<String>", Default: /name}
Mappings:
  Sizes:
    "30": {Seconds: 180}
Conditions:
  Yes: !Equals [!Ref Size, "30"]
  No: !Not [!Condition Yes]
  Both: !And [!Condition Yes, !Condition No]
  Either: !Or [!Condition No, !Condition Yes]
  Open: !Equals [!Ref Given, x]
  Decided: !And [!Condition Open, !Condition No]
  Here: !Equals [!Ref "AWS::Region", eu-west-1]
  Round: !Condition Round
Resources:
  Queue: {Type: "AWS::SQS::Queue"}
  Gone: {Type: "AWS::SQS::Queue", Condition: No}
Values: []
"#;

fn comes_to(expression: &str, given: &[&str]) -> Value {
    let template = yaml::read(&format!("{EXPRESSIONS}Value: {expression}\n")).unwrap();
    let given: Vec<Parameter> = given.iter().map(|it| it.parse().unwrap()).collect();
    Scope::new(&template, &given).unwrap().resolve(&template["Value"])
}

#[test]
fn expressions_come_to_what_cloudformation_makes_of_them() {
    for (expression, value) in [
        ("!Ref Size", json!("30")),
        ("!Ref List", json!(["a", "b"])),
        ("!Ref Queue", json!("${Queue}")),
        ("!GetAtt Queue.Arn", json!("${Queue.Arn}")),
        ("{\"Fn::GetAtt\": [Queue, Arn]}", json!("${Queue.Arn}")),
        ("!FindInMap [Sizes, !Ref Size, Seconds]", json!(180)),
        ("!Sub \"x-${Size}-${AWS::Region}\"", json!("x-30-${AWS::Region}")),
        ("!Sub [\"${A}/${Queue}\", {A: !If [Yes, one, other]}]", json!("one/${Queue}")),
        ("!If [No, a, !If [Both, b, !If [Either, c, d]]]", json!("c")),
        ("[!If [No, a, !Ref \"AWS::NoValue\"], z]", json!(["z"])),
        ("{a: !If [No, a, !Ref \"AWS::NoValue\"], b: 1}", json!({"b": 1})),
        ("!If [Decided, a, b]", json!("b")),
        ("!Join [\"-\", !Ref List]", json!("a-b")),
        ("!Select [1, !Split [\":\", \"a:b:c\"]]", json!("b")),
    ] {
        assert_eq!(comes_to(expression, &[]), value, "{expression}");
    }
}

#[test]
fn what_only_a_deployment_knows_is_left_open() {
    for (expression, why) in [
        ("!Ref Given", "--parameter Given=VALUE"),
        ("!Ref Secret", "--parameter Secret=VALUE"),
        ("!If [Open, a, b]", "condition Open"),
        ("!If [Here, a, b]", "condition Here"),
        ("!If [Round, a, b]", "condition Round"),
        ("!If [Nothing, a, b]", "condition Nothing"),
        ("!Sub \"x-${Given}\"", "--parameter Given=VALUE"),
        ("!Select [0, !Split [\":\", !Ref Given]]", "--parameter Given=VALUE"),
        ("!FindInMap [Sizes, !Ref Given, Seconds]", "--parameter Given=VALUE"),
        ("!FindInMap [Sizes, 31, Seconds]", "Fn::FindInMap"),
        ("!ImportValue other", "Fn::ImportValue"),
        ("!Select [7, !Ref List]", "Fn::Select"),
    ] {
        let value = comes_to(expression, &[]);
        let text = value.as_str().unwrap();
        assert!(text.contains("${?") && text.contains(why), "{expression}: {text}");
    }
    assert_eq!(comes_to("!If [Open, a, b]", &["Given=x"]), json!("a"));
    assert_eq!(comes_to("!Sub \"${Given}:\"", &["Given=y=z"]), json!("y=z:"));
    assert!("=x".parse::<Parameter>().is_err() && "x".parse::<Parameter>().is_err());
}

#[test]
fn resources_whose_condition_fails_are_not_there() {
    let template = yaml::read(EXPRESSIONS).unwrap();
    let scope = Scope::new(&template, &[]).unwrap();
    assert_eq!(scope.resources().map(|(name, ..)| name).collect::<Vec<_>>(), ["Queue"]);
    let given = ["Size=1".parse().unwrap(), "Nobody=1".parse().unwrap()];
    assert_eq!(unknown(&template, &given), Some("Nobody"));
    assert!(Scope::new(&json!({}), &[]).is_err());
}

const PLAIN: &str = r#"{
  "Globals": {"Function": {"Timeout": 60, "Environment": {"Variables": {"ONLYONCE_NAMESPACE": "shop"}}}},
  "Resources": {
    "Jobs": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "jobs.fifo", "FifoQueue": true,
      "RedrivePolicy": {"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:1:dead.fifo", "maxReceiveCount": "7"}}},
    "Claims": {"Type": "AWS::DynamoDB::GlobalTable", "Properties": {"TableName": "claims",
      "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
      "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
      "Replicas": [{"Region": "eu-west-1", "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true}},
        {"Region": "eu-central-1"}]}},
    "Role": {"Type": "AWS::IAM::Role", "Properties": {
      "ManagedPolicyArns": ["arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole", "arn:aws:iam::1:policy/own"]}},
    "More": {"Type": "AWS::IAM::Policy", "Properties": {"Roles": [{"Ref": "Role"}], "PolicyDocument": {"Statement":
      {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": {"Fn::Sub": "arn:aws:sqs:${AWS::Region}:1:${Jobs.QueueName}"}}}}},
    "Plain": {"Type": "AWS::Lambda::Function", "Properties": {"Role": {"Fn::GetAtt": ["Role", "Arn"]},
      "ReservedConcurrentExecutions": 3,
      "Environment": {"Variables": {"ONLYONCE_STORE": "dynamodb://claims", "ONLYONCE_NAMESPACE": "shop"}}}},
    "Source": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": {"FunctionName": {"Ref": "Plain"},
      "EventSourceArn": {"Fn::GetAtt": ["Jobs", "Arn"]}, "BatchSize": 5,
      "ScalingConfig": {"MaximumConcurrency": 4}}},
    "Stream": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": {"FunctionName": {"Ref": "Plain"},
      "EventSourceArn": {"Fn::GetAtt": ["Claims", "StreamArn"]}, "StartingPosition": "LATEST"}},
    "Sam": {"Type": "AWS::Serverless::Function", "Properties": {
      "Environment": {"Variables": {"ONLYONCE_STORE": "dynamodb://claims", "ONLYONCE_DLQ_URL": {"Ref": "Jobs"}}},
      "Events": {"Jobs": {"Type": "SQS", "Properties": {"Queue": "arn:aws:sqs:eu-west-1:1:elsewhere"}}}}}
  }
}"#;

fn named<'d>(found: &'d [Deployment], name: &str) -> &'d Deployment {
    found.iter().find(|it| it.name == name).unwrap()
}

#[test]
fn plain_json_and_globals_are_read() {
    let found = deployments(PLAIN, &[], None).unwrap();
    assert_eq!(found.len(), 2, "a stream is no queue");
    let plain = named(&found, "Plain");
    let function = plain.function.is().unwrap();
    assert_eq!(function.timeout.is(), Some(&Duration::from_secs(3)), "globals are SAM's");
    assert_eq!(function.reserved.is(), Some(&3));
    let source = plain.source.is().unwrap();
    assert_eq!((source.batch.is(), source.maximum_concurrency.is()), (Some(&5), Some(&4)));
    assert_eq!(source.reports_failures, Known::Absent);
    let queue = plain.queue.is().unwrap();
    assert_eq!((queue.place.name.as_str(), queue.is_fifo.is()), ("jobs.fifo", Some(&true)));
    assert_eq!(queue.redrive.is().unwrap().max_receive.is(), Some(&7));
    let dlq = plain.dlq.is().unwrap();
    assert_eq!(dlq.is_fifo.is(), Some(&true));
    assert!(
        matches!(&dlq.retention, Known::Untold(why) if why.0.contains("not made by this template"))
    );
    let Some(StoreFacts::DynamoDb(place, table)) = plain.store.is() else { panic!("a table") };
    assert_eq!(place.arn.as_deref(), Some("${Claims.Arn}"));
    let table = table.is().unwrap();
    assert_eq!(table.replicas.is().unwrap(), &["eu-central-1"]);
    assert_eq!((table.is_restorable.is(), &table.ttl), (Some(&true), &Known::Absent));
    let role = plain.role.is().unwrap();
    assert_eq!(role.unread.len(), 1, "a policy of one's own is not in the template");
    assert!(role.allows("sqs:SendMessage", Some(&queue.place)));
    assert!(role.allows("sqs:ReceiveMessage", Some(&queue.place)));

    let sam = named(&found, "Sam");
    assert_eq!(sam.function.is().unwrap().timeout.is(), Some(&Duration::from_secs(60)));
    assert_eq!(sam.quarantine.is().unwrap().name, "jobs.fifo");
    let queue = sam.queue.is().unwrap();
    assert_eq!(queue.place.arn.as_deref(), Some("arn:aws:sqs:eu-west-1:1:elsewhere"));
    assert!(matches!(queue.visibility, Known::Untold(_)));
    assert_eq!(sam.sharers.is().unwrap(), &[] as &[String], "both leave their code out");

    let own = PLAIN.replace("\"Events\"", "\"CodeUri\": \"own/\", \"Events\"");
    let found = deployments(&own, &[], None).unwrap();
    assert_eq!(named(&found, "Plain").sharers.is().unwrap(), &["Sam"]);
    assert_eq!(deployments(PLAIN, &[], Some("Sam")).unwrap().len(), 1);
    assert!(deployments(PLAIN, &[], Some("Nobody")).is_err());
}
