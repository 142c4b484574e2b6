//! Templates: the shipped one, and one with each fault planted in its text.

use super::{Found, doctor};
use crate::Folder;

/// Ways in which the shipped template is deployed.
const VARIANTS: &[&[&str]] = &[
    &[],
    &["ExistingQueueArn=arn:aws:sqs:eu-west-1:123456789012:orders"],
    &["ExistingQueueArn=arn:aws:sqs:eu-west-1:123456789012:orders.fifo"],
    &["ExistingTableName=claims"],
    &["Outbox=true", "ExistingTableName=claims"],
    &["Outbox=true"],
    &["Fifo=true"],
    &["Drill=true"],
    &["KmsKeyArn=arn:aws:kms:eu-west-1:123456789012:key/1", "Outbox=true"],
    &["BatchSize=10000", "BatchingWindow=20", "MaximumConcurrency=5"],
    &["FunctionTimeout=900", "MaxReceiveCount=1000"],
    &["EffectArns=arn:aws:sns:eu-west-1:123456789012:told", "SecretArns=a,b", "RowTableArns=c"],
];

#[test]
fn nothing_is_wrong_with_the_shipped_template() {
    for parameters in VARIANTS {
        let mut words = vec!["--template", "template.yaml", "--strict"];
        words.extend(parameters.iter().flat_map(|it| ["--parameter", it]));
        let found = Found::by(&words, None);
        assert_eq!(
            (found.code, found.wrong()),
            (Some(0), vec![]),
            "{parameters:?}: {}",
            found.said
        );
        assert_eq!(found.report["deployments"], serde_json::json!(["Worker"]));
        if !parameters.iter().any(|it| it.starts_with("Existing")) {
            assert_eq!(found.report["cannot_judge"], 0, "{parameters:?}: {}", found.said);
        }
    }
}

#[test]
fn parameters_that_do_not_fit_the_jobs_are_told() {
    for (parameter, code) in [
        ("MaxReceiveCount=8", "max-receive-under-attempts"),
        ("FunctionTimeout=10", "job-timeout-over-function"),
    ] {
        let words = ["--template", "template.yaml", "--parameter", parameter];
        let found = Found::by(&words, None);
        assert_eq!((found.code, found.wrong()), (Some(0), vec![code]), "{}", found.said);
    }
    let words = ["--template", "template.yaml", "--parameter", "Nobody=1"];
    let (code, said) = doctor(&words, None);
    assert!(code == Some(2) && said.contains("there is no parameter \"Nobody\""), "{said}");
    let (code, said) = doctor(&["--template", "jobs.toml"], None);
    assert!(code == Some(1) && said.contains("jobs.toml: "), "{said}");
}

const SOUND: &str = include_str!("../../fixtures/doctor.yaml");

/// The code, the text, what it becomes, and what the jobs file says beside.
type Fault = (&'static str, &'static str, &'static str);

const FAULTS: &[Fault] = &[
    ("visibility-short", "VisibilityTimeout: 365", "VisibilityTimeout: 364"),
    ("visibility-under-timeout", "VisibilityTimeout: 365", "VisibilityTimeout: 59"),
    ("visibility-under-timeout", "      VisibilityTimeout: 365\n", ""),
    ("no-dlq", "RedrivePolicy:", "Tags:"),
    ("max-receive-low", "maxReceiveCount: 10", "maxReceiveCount: 3"),
    ("max-receive-under-attempts", "maxReceiveCount: 10", "maxReceiveCount: 8"),
    ("dlq-retention-short", "MessageRetentionPeriod: 1209600", "MessageRetentionPeriod: 345600"),
    ("dlq-retention-short", "      MessageRetentionPeriod: 1209600\n", ""),
    ("dlq-type-differs", "      FifoQueue: false", "      FifoQueue: true"),
    ("dlq-url-missing", "ONLYONCE_DLQ_URL: !Ref Dead", "OTHER: none"),
    (
        "dlq-url-other",
        "deadLetterTargetArn: !GetAtt Dead.Arn",
        "deadLetterTargetArn: !GetAtt Later.Arn",
    ),
    ("partial-failures-off", "FunctionResponseTypes: [ReportBatchItemFailures]", "Enabled: true"),
    (
        "batch-without-window",
        "MaximumBatchingWindowInSeconds: 5",
        "MaximumBatchingWindowInSeconds: 0",
    ),
    (
        "concurrency-under-maximum",
        "ReservedConcurrentExecutions: 20",
        "ReservedConcurrentExecutions: 19",
    ),
    ("job-timeout-over-function", "Timeout: !Ref Seconds", "Timeout: 14"),
    ("settings-faulty", "ONLYONCE_NAMESPACE: shop", "ONLYONCE_NAMESPACE: ''"),
    ("permission-missing", "dynamodb:UpdateItem", "dynamodb:PutItem"),
    ("permission-missing", "Resource: !GetAtt Claims.Arn", "Resource: !GetAtt Dead.Arn"),
    ("permission-missing", "Resource: !GetAtt Key.Arn", "Resource: !GetAtt Dead.Arn"),
    ("permissions-wide", "Resource: !GetAtt Claims.Arn", "Resource: '*'"),
    ("permissions-wide", "Action: sqs:SendMessage", "Action: sqs:*"),
    (
        "permissions-wide",
        "ManagedPolicyArns: []",
        "ManagedPolicyArns: ['arn:aws:iam::aws:policy/AdministratorAccess']",
    ),
    ("key-schema", "KeySchema: [{AttributeName: pk", "KeySchema: [{AttributeName: parked"),
    ("parked-index-missing", "IndexName: parked", "IndexName: other"),
    ("parked-index-wrong", "ProjectionType: ALL", "ProjectionType: KEYS_ONLY"),
    ("ttl-off", "Enabled: true # expiry", "Enabled: false"),
    ("ttl-other-attribute", "AttributeName: expires_at", "AttributeName: lease_until"),
    ("pitr-off", "PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false"),
    ("store-not-kept", "dynamodb://${Claims}", "sqlite:${Claims}"),
    ("namespace-shared", "ONLYONCE_NAMESPACE: other", "ONLYONCE_NAMESPACE: shop"),
];

#[test]
fn each_fault_of_a_template_is_found_by_its_code_alone() {
    let folder = Folder::new();
    let found = |text: &str| {
        let path = folder.file("template.yaml", text);
        Found::by(&["--template", &path, "--function", "Worker"], None)
    };
    let sound = found(SOUND);
    assert_eq!(sound.report["findings"], serde_json::json!([]), "{}", sound.said);
    for (code, from, to) in FAULTS {
        assert!(SOUND.contains(from), "{from}");
        let found = found(&SOUND.replacen(from, to, 1));
        assert_eq!(found.wrong(), [*code], "{to}: {}", found.said);
        let faults = found.report["faults"].as_u64().unwrap();
        assert_eq!(found.code, Some(i32::from(faults > 0)), "{}", found.said);
    }
    // As CloudFormation's own JSON, and with what is only known later.
    let open = SOUND.replace("{Type: Number, Default: 60}", "{Type: Number}");
    let later = found(&open);
    assert_eq!((later.code, later.wrong()), (Some(0), vec![]), "{}", later.said);
    assert!(later.said.contains("give --parameter Seconds=VALUE"), "{}", later.said);
    let path = folder.file("template.yaml", &open);
    let words = ["--template", &path, "--parameter", "Seconds=61", "--function", "Worker"];
    assert_eq!(Found::by(&words, None).wrong(), ["visibility-short"]);
}

#[test]
fn what_is_found_is_shown_in_groups() {
    let folder = Folder::new();
    let text = SOUND.replace("RedrivePolicy:", "Tags:");
    let text = text.replace("Enabled: true # expiry", "Enabled: !Ref Expiry");
    let text = text.replacen("Parameters:", "Parameters:\n  Expiry: {Type: String}", 1);
    let path = folder.file("template.yaml", &text);
    let (code, said) = doctor(&["--template", &path, "--function", "Worker"], None);
    assert_eq!((code, said.as_str()), (Some(1), include_str!("../../fixtures/doctor.txt")));
}

/// What a jobs file says: its fault, and its text.
const JOBS: &[(&str, &str)] = &[
    ("retention-short", "[job.a]\nretention = \"17d\"\n"),
    ("key-window-short", "[job.a]\nkey_window = \"1m\"\n"),
    ("key-from-message-id", "[message]\nkey = \"meta.messageId\"\n[job.a]\n"),
    ("key-from-message-id", "[message]\nkey_attribute = \"message_id\"\n[job.a]\n"),
    ("key-from-event-id", "[message]\nunwrap = \"eventbridge\"\nkey = \"id\"\n[job.a]\n"),
    ("key-unstable", "[message]\nkey = \"join('-', [user, sentAt])\"\n[job.a]\n"),
];

#[test]
fn each_fault_of_a_jobs_file_is_found_by_its_code_alone() {
    let folder = Folder::new();
    let template = folder.file("template.yaml", SOUND);
    let effect = "effect = \"http\"\nguarantee = \"keyed\"\nurl = \"https://example.com/\"\n";
    for (code, text) in JOBS {
        let jobs = folder.file("jobs.toml", &format!("{text}{effect}"));
        let mut command = crate::onlyonce(&folder.0);
        command.env("ONLYONCE_JOBS", jobs);
        let words = ["--json", "doctor", "--template", &template, "--function", "Worker"];
        let (_, said) = crate::run(&mut command, &words);
        let report: serde_json::Value = serde_json::from_str(&said).expect(&said);
        let findings = report["findings"].as_array().unwrap();
        assert!(findings.len() == 1 && findings[0]["code"] == *code, "{code}: {said}");
    }
    // Jobs in Rust are known to their own binary.
    let mut command = crate::example("my_worker");
    let words = ["doctor", "--template", &template, "--function", "Worker", "--checklist"];
    let (code, said) = crate::run(&mut command, &words);
    assert!(code == Some(0) && said.contains("declares its effects in Rust"), "{said}");
    let mut command = crate::onlyonce(&folder.0);
    command.env("ONLYONCE_JOBS", folder.0.join("none.toml"));
    let words = ["doctor", "--template", &template, "--function", "Worker"];
    let (code, said) = crate::run(&mut command, &words);
    assert!(code == Some(0) && said.contains("ONLYONCE_JOBS names the jobs file"), "{said}");
}
