//! Live settings.

use std::process::Command;

use aws_sdk_dynamodb::types::{KeyType, ProjectionType, ScalarAttributeType};
use axum::Router;
use axum::http::{StatusCode, header};
use serde_json::{Value, json};

use super::site::{Plan, Site};
use super::{Found, doctor};

#[tokio::test]
async fn a_sound_deployment_has_no_finding_by_its_function_and_by_its_queue() {
    let site = Site::new(&Plan::default()).await;
    for words in [["--function", &site.function], ["--queue-url", &site.queue_url]] {
        let found = Found::by(&words, None);
        assert_eq!(found.code, Some(0), "{}", found.said);
        assert_eq!(found.report["findings"], json!([]), "{}", found.said);
        assert_eq!(found.report["deployments"], json!([site.function]));
    }
    let (code, said) = doctor(&["--function", &site.function], None);
    let none = "no faults, no warnings, no rules that cannot be judged here\n";
    assert_eq!((code, said), (Some(0), format!("{}: {none}", site.function)));
}

type Fault = (&'static str, fn(&mut Plan));

const SQS_FOR_ALL: &str = "arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole";

/// A statement of a policy, by its name.
fn said<'p>(policy: &'p mut Value, sid: &str) -> &'p mut Value {
    let mut statements = policy["Statement"].as_array_mut().unwrap().iter_mut();
    statements.find(|it| it["Sid"] == sid).unwrap()
}

const FAULTS: &[Fault] = &[
    ("visibility-short", |it| it.visibility = 179),
    ("visibility-short", |it| it.window = 1),
    ("visibility-under-timeout", |it| it.visibility = 20),
    ("no-dlq", |it| it.has_dlq = false),
    ("max-receive-low", |it| it.max_receive = 4),
    ("max-receive-under-attempts", |it| it.max_receive = 8),
    ("dlq-retention-short", |it| (it.retention, it.dlq_retention) = (345_600, 345_600)),
    ("dlq-url-missing", |it| it.quarantine = None),
    ("dlq-url-other", |it| {
        it.quarantine = Some("other");
        it.policy = |policy| {
            let queue = &mut said(policy, "Quarantine")["Resource"];
            *queue = queue.as_str().unwrap().replace("-dead", "-other").into();
        };
    }),
    ("partial-failures-off", |it| it.reports_failures = false),
    ("batch-without-window", |it| it.batch = 11),
    ("concurrency-under-maximum", |it| (it.reserved, it.maximum) = (Some(3), Some(4))),
    ("job-timeout-over-function", |it| it.timeout = 14),
    ("settings-faulty", |it| it.variables = &[("ONLYONCE_CONCURRENCY", "none")]),
    ("permission-missing", |it| {
        it.policy = |policy| said(policy, "Claims")["Action"] = json!(["dynamodb:PutItem"]);
    }),
    ("permission-missing", |it| it.encrypted_by = Some("arn:aws:kms:us-east-1:000000000000:key/1")),
    ("permissions-wide", |it| {
        it.policy = |policy| said(policy, "Jobs")["Resource"] = json!("*");
    }),
    ("permissions-wide", |it| {
        it.policy = |policy| said(policy, "Claims")["Action"] = json!("dynamodb:*");
    }),
    ("permissions-wide", |it| it.managed = Some(SQS_FOR_ALL)),
    ("table-missing", |it| it.has_table = false),
    ("key-schema", |it| {
        it.key = &[
            ("pk", KeyType::Hash, ScalarAttributeType::S),
            ("sk", KeyType::Range, ScalarAttributeType::S),
        ];
    }),
    ("key-schema", |it| it.key = &[("id", KeyType::Hash, ScalarAttributeType::S)]),
    ("parked-index-missing", |it| it.index = None),
    ("parked-index-wrong", |it| it.index = Some(("created_at", ProjectionType::All))),
    ("parked-index-wrong", |it| it.index = Some(("updated_at", ProjectionType::KeysOnly))),
    ("ttl-off", |it| it.ttl = None),
    ("ttl-other-attribute", |it| it.ttl = Some("lease_until")),
    ("pitr-off", |it| it.is_restorable = false),
    ("global-table", |it| it.has_replica = true),
    ("namespace-shared", |it| it.has_sharer = true),
];

#[tokio::test]
async fn each_fault_of_a_deployment_is_found_by_its_code_alone() {
    for (at, (code, plant)) in FAULTS.iter().enumerate() {
        let mut plan = Plan::default();
        plant(&mut plan);
        let site = Site::new(&plan).await;
        let found = Found::by(&["--function", &site.function], None);
        assert_eq!(found.wrong(), [*code], "number {at}: {}", found.said);
        // What hangs on the settings that nobody can read is the one thing that is not judged.
        let open = if *code == "settings-faulty" { found.codes("cannot-judge").len() } else { 0 };
        assert_eq!(found.report["cannot_judge"].as_u64(), Some(open as u64), "{}", found.said);
        let is_fault = found.report["faults"] == 1;
        assert_eq!(found.code, Some(i32::from(is_fault)), "{}", found.said);
        if !is_fault {
            let strict = Found::by(&["--function", &site.function, "--strict"], None);
            assert_eq!(strict.code, Some(1), "{}", strict.said);
        }
    }
}

#[tokio::test]
async fn a_dead_letter_queue_that_is_gone_is_none() {
    let site = Site::new(&Plan::default()).await;
    site.lose_dlq().await;
    let found = Found::by(&["--function", &site.function], None);
    assert_eq!((found.code, found.wrong()), (Some(1), vec!["no-dlq"]), "{}", found.said);
    let (code, said) = doctor(&["--function", &site.function], None);
    assert!(code == Some(1) && said.contains("no-dlq") && said.contains("is not there"), "{said}");
    assert!(
        said.ends_with(": 1 fault, no warnings, no rules that cannot be judged here\n"),
        "{said}"
    );
}

#[tokio::test]
async fn a_functions_own_file_is_not_looked_for_here() {
    let variables = &[("ONLYONCE_STORE", "sqlite:records-of-the-function.db")];
    let site = Site::new(&Plan { variables, ..Plan::default() }).await;
    let found = Found::by(&["--function", &site.function], None);
    assert_eq!((found.code, found.wrong()), (Some(1), vec!["store-not-kept"]), "{}", found.said);
    assert!(found.codes("cannot-judge").contains(&"store-not-set-up"), "{}", found.said);
    assert!(found.said.contains("in the function"), "{}", found.said);
    assert!(!crate::root().join("records-of-the-function.db").exists());
}

#[tokio::test]
async fn a_queue_that_is_polled_is_judged_with_the_settings_here() {
    let site = Site::new(&Plan { max_receive: 4, ..Plan::default() }).await;
    let url = site.queue_url.replace("-jobs", "-dead");
    let found = Found::by(&["--queue-url", &url], Some("memory:"));
    assert_eq!(found.wrong(), ["no-dlq", "store-not-kept", "dlq-url-missing"], "{}", found.said);
    assert!(found.codes("cannot-judge").contains(&"permissions-wide"), "{}", found.said);
}

#[test]
fn what_is_not_there_is_an_error() {
    let (code, said) = doctor(&["--function", "nobody-is-called-so"], None);
    assert!(code == Some(1) && said.contains("there is no function nobody"), "{said}");
    let endpoint = std::env::var("AWS_ENDPOINT_URL").unwrap();
    let url = format!("{endpoint}/000000000000/no-queue-is-called-so");
    let (code, said) = doctor(&["--queue-url", &url], None);
    assert!(code == Some(1) && said.contains("there is no queue"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    let (code, said) = crate::run(&mut command, &["doctor", "--function", "shop"]);
    assert!(code == Some(1) && said.contains("AWS did not answer lambda:"), "{said}");
    for wrong in
        [&["--parameter", "A=1"][..], &["--template", "x", "--queue-url", "y"], &["--what"]]
    {
        assert_eq!(doctor(wrong, None).0, Some(2), "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_not_judged_and_names_its_permission() {
    let refuse = async || {
        let error = json!({ "__type": "AccessDeniedException", "message": "s3cret" });
        let kind = [("x-amzn-errortype", "AccessDeniedException")];
        (
            StatusCode::FORBIDDEN,
            kind,
            [(header::CONTENT_TYPE, "application/json")],
            error.to_string(),
        )
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    #[allow(clippy::disallowed_methods, reason = "it ends with its test")]
    let server =
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(refuse)).await });
    let ask = |words: [&str; 2]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.current_dir(crate::root()).env("AWS_ENDPOINT_URL", &endpoint).arg("doctor");
        crate::run(&mut command, &words)
    };
    let (code, said) = ask(["--function", "shop"]);
    assert_eq!(code, Some(0), "{said}");
    for permission in ["lambda:GetFunctionConfiguration", "lambda:ListEventSourceMappings"] {
        assert!(said.contains(&format!("needs permission {permission}")), "{said}");
    }
    assert!(said.contains("shop: no faults, no warnings, ") && !said.contains("s3cret"), "{said}");
    let url = format!("{endpoint}/000000000000/jobs");
    let (code, said) = ask(["--queue-url", &url]);
    assert!(code == Some(0) && said.contains("needs permission sqs:GetQueueAttributes"), "{said}");
    assert!(said.contains("needs permission dynamodb:DescribeTable"), "{said}");
    server.abort();
}

#[tokio::test]
async fn the_checklist_has_a_verdict_for_each_of_its_ten_points() {
    let verdicts = |found: &Found| -> Vec<String> {
        let points = found.report["checklist"].as_array().unwrap().iter();
        points.map(|it| it["verdict"].as_str().unwrap().to_owned()).collect()
    };
    let sound = Site::new(&Plan::default()).await;
    let found = Found::by(&["--function", &sound.function, "--checklist"], None);
    // No setting shows whether copies were tried out.
    let expected = [&["holds"; 9][..], &["cannot-judge"]].concat();
    assert_eq!(
        (found.code, verdicts(&found)),
        (Some(0), expected.iter().map(|it| (*it).to_owned()).collect())
    );
    assert!(found.said.contains("user.welcome runs again, a rare duplicate"), "{}", found.said);
    let (code, said) = doctor(&["--function", &sound.function, "--checklist"], None);
    assert!(code == Some(0) && said.contains("Can every job run twice"), "{said}");
    assert_eq!(said.matches("holds: ").count(), 9, "{said}");

    let broken = Site::new(&Plan { has_dlq: false, ..Plan::default() }).await;
    let found = Found::by(&["--function", &broken.function, "--checklist"], None);
    let failed: Vec<_> = verdicts(&found)
        .iter()
        .enumerate()
        .filter(|(_, it)| *it == "fails")
        .map(|(at, _)| at + 1)
        .collect();
    assert_eq!((found.code, failed), (Some(1), vec![8]), "{}", found.said);
}
