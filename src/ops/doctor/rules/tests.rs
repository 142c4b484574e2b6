//! Each rule, on facts alone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::{codes, judge};
use crate::ops::doctor::facts::{
    DeadLetters, Deployment, Function, Index, JobFacts, Jobs, Key, Place, Queue, Redrive, Source,
    StoreFacts, Table,
};
use crate::ops::doctor::finding::Severity;
use crate::ops::doctor::known::{Known, Untold};
use crate::ops::doctor::policy::Policies;
use crate::store::redis::RedisKeeping;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn place(service: &str, name: &str) -> Place {
    Place { name: name.to_owned(), arn: Some(format!("arn:aws:{service}:eu-west-1:1:{name}")) }
}

fn claims() -> Place {
    let arn = "arn:aws:dynamodb:eu-west-1:1:table/claims".to_owned();
    Place { name: "claims".to_owned(), arn: Some(arn) }
}

fn seconds(n: u64) -> Known<Duration> {
    Known::Is(Duration::from_secs(n))
}

fn role(change: impl FnOnce(&mut serde_json::Value)) -> Known<Policies> {
    let text = include_str!("../../../../infra/iam/worker.json");
    let text = text.replace("REGION", "eu-west-1").replace("ACCOUNT", "1");
    let text = text
        .replace("TABLE", "claims")
        .replace("DEAD_LETTER_QUEUE", "dead")
        .replace("QUEUE", "jobs");
    let mut policy = serde_json::from_str(&text).unwrap();
    change(&mut policy);
    let mut policies = Policies::default();
    policies.add(&policy);
    Known::Is(policies)
}

/// A statement of a policy, by its name.
fn said<'p>(policy: &'p mut serde_json::Value, sid: &str) -> &'p mut serde_json::Value {
    let mut statements = policy["Statement"].as_array_mut().unwrap().iter_mut();
    statements.find(|it| it["Sid"] == sid).unwrap()
}

/// Nothing is wrong with it.
fn sound() -> Deployment {
    let table = Table {
        key: Known::Is(vec![Key::new("pk", "HASH", "S")]),
        parked: Known::Is(Index {
            key: Known::Is(vec![
                Key::new("parked", "HASH", "S"),
                Key::new("updated_at", "RANGE", "N"),
            ]),
            projection: Known::Is("ALL".to_owned()),
        }),
        ttl: Known::Is("expires_at".to_owned()),
        is_restorable: Known::Is(true),
        replicas: Known::Is(Vec::new()),
    };
    let job = JobFacts {
        name: "order.settle".to_owned(),
        effect: Some("http".to_owned()),
        guarantee: Some("keyed".to_owned()),
        key_window: Some(DAY),
        attempts: 5,
        horizon: Duration::from_secs(100),
        timeout: Some(Duration::from_secs(15)),
        retention: Some(DAY * 45),
    };
    Deployment {
        name: "shop".to_owned(),
        queue: Known::Is(Queue {
            place: place("sqs", "jobs"),
            is_fifo: Known::Is(false),
            visibility: seconds(185),
            retention: Known::Is(DAY * 4),
            redrive: Known::Is(Redrive {
                target: place("sqs", "dead"),
                max_receive: Known::Is(10),
            }),
            key: Known::Absent,
        }),
        dlq: Known::Is(DeadLetters { is_fifo: Known::Is(false), retention: Known::Is(DAY * 14) }),
        source: Known::Is(Source {
            batch: Known::Is(100),
            window: seconds(5),
            reports_failures: Known::Is(true),
            maximum_concurrency: Known::Is(5),
        }),
        function: Known::Is(Function { timeout: seconds(30), reserved: Known::Is(5), fault: None }),
        quarantine: Known::Is(place("sqs", "dead")),
        store: Known::Is(StoreFacts::DynamoDb(claims(), Known::Is(table))),
        role: role(|_| ()),
        jobs: Known::Is(Jobs {
            jobs: vec![job],
            key_attribute: "idempotency-key".to_owned(),
            key_expression: Some("detail.order.id".to_owned()),
            sees_event: true,
        }),
        sharers: Known::Is(Vec::new()),
    }
}

fn is<T>(known: &mut Known<T>) -> &mut T {
    match known {
        Known::Is(value) => value,
        _ => panic!("it is known"),
    }
}

fn queue(it: &mut Deployment) -> &mut Queue {
    is(&mut it.queue)
}

fn table(it: &mut Deployment) -> &mut Table {
    match is(&mut it.store) {
        StoreFacts::DynamoDb(_, table) => is(table),
        _ => panic!("it is a table"),
    }
}

fn job(it: &mut Deployment) -> &mut JobFacts {
    &mut is(&mut it.jobs).jobs[0]
}

fn redis(it: &mut Deployment, change: impl FnOnce(&mut RedisKeeping)) {
    let mut keeping = RedisKeeping {
        policy: Some("noeviction".to_owned()),
        is_logged: Some(true),
        replicas: Some(0),
        waits_for_replicas: false,
    };
    change(&mut keeping);
    it.store = Known::Is(StoreFacts::Redis(Known::Is(keeping)));
}

fn key(it: &mut Deployment, text: &str) {
    is(&mut it.jobs).key_expression = Some(text.to_owned());
}

type Fault = (&'static str, fn(&mut Deployment));

/// Each fault by itself, and the code that names it.
const FAULTS: &[Fault] = &[
    ("visibility-under-timeout", |it| queue(it).visibility = seconds(29)),
    ("visibility-short", |it| queue(it).visibility = seconds(184)),
    ("visibility-short", |it| queue(it).visibility = seconds(30)),
    ("no-dlq", |it| {
        queue(it).redrive = Known::Absent;
        it.dlq = Known::Absent;
    }),
    ("no-dlq", |it| it.dlq = Known::Absent),
    ("max-receive-low", |it| is(&mut queue(it).redrive).max_receive = Known::Is(4)),
    ("max-receive-under-attempts", |it| job(it).attempts = 10),
    ("dlq-retention-short", |it| is(&mut it.dlq).retention = Known::Is(DAY * 4)),
    ("dlq-retention-short", |it| {
        queue(it).retention = Known::Is(DAY * 14);
        is(&mut it.dlq).retention = Known::Is(DAY * 13);
    }),
    ("dlq-type-differs", |it| is(&mut it.dlq).is_fifo = Known::Is(true)),
    ("dlq-url-missing", |it| it.quarantine = Known::Absent),
    ("dlq-url-other", |it| {
        it.quarantine = Known::Is(place("sqs", "other"));
        it.role = role(|policy| {
            said(policy, "Quarantine")["Resource"] = json!("arn:aws:sqs:eu-west-1:1:other");
        });
    }),
    ("partial-failures-off", |it| is(&mut it.source).reports_failures = Known::Is(false)),
    ("partial-failures-off", |it| is(&mut it.source).reports_failures = Known::Absent),
    ("batch-without-window", |it| is(&mut it.source).window = Known::Absent),
    ("batch-without-window", |it| {
        is(&mut it.source).batch = Known::Is(11);
        is(&mut it.source).window = seconds(0);
    }),
    ("concurrency-under-maximum", |it| is(&mut it.function).reserved = Known::Is(4)),
    ("job-timeout-over-function", |it| job(it).timeout = Some(Duration::from_secs(31))),
    ("settings-faulty", |it| {
        is(&mut it.function).fault = Some("ONLYONCE_JOBS is empty".to_owned())
    }),
    ("permission-missing", |it| {
        it.role = role(|policy| said(policy, "Jobs")["Action"] = json!(["sqs:ReceiveMessage"]));
    }),
    ("permission-missing", |it| {
        it.role = role(|policy| {
            said(policy, "Claims")["Resource"] = json!("arn:aws:dynamodb:eu-west-1:1:table/other");
        });
    }),
    ("permission-missing", |it| {
        it.role = role(|policy| {
            let denial = json!({ "Effect": "Deny", "Action": "sqs:Delete*", "Resource": "*" });
            policy["Statement"].as_array_mut().unwrap().push(denial);
        });
    }),
    ("permission-missing", |it| {
        job(it).effect = Some("sns".to_owned());
        it.role = role(|policy| said(policy, "Effects")["Action"] = json!(["sqs:SendMessage"]));
    }),
    ("permission-missing", |it| {
        queue(it).key = Place::key("arn:aws:kms:eu-west-1:1:key/other").into();
    }),
    ("permissions-wide", |it| {
        it.role = role(|policy| said(policy, "Jobs")["Action"] = json!("sqs:*"));
    }),
    ("permissions-wide", |it| {
        it.role = role(|policy| said(policy, "Claims")["Resource"] = json!("*"));
    }),
    ("permissions-wide", |it| {
        it.role = role(|policy| {
            let more = json!({ "Effect": "Allow", "Action": "dynamodb:DeleteTable",
                "Resource": "arn:aws:dynamodb:eu-west-1:1:table/claims" });
            policy["Statement"].as_array_mut().unwrap().push(more);
        });
    }),
    ("permissions-wide", |it| {
        it.role = role(|policy| {
            let more = json!({ "Effect": "Allow", "NotAction": "iam:*", "Resource": "*" });
            policy["Statement"].as_array_mut().unwrap().push(more);
        });
    }),
    ("retention-short", |it| job(it).retention = Some(DAY * 17)),
    ("key-window-short", |it| job(it).key_window = Some(Duration::from_secs(99))),
    ("key-from-message-id", |it| key(it, "MessageId")),
    ("key-from-message-id", |it| key(it, "join('/', [user.id, meta.message_id])")),
    ("key-from-message-id", |it| {
        is(&mut it.jobs).key_attribute = "message-id".to_owned();
    }),
    ("key-from-event-id", |it| key(it, "id")),
    ("key-from-event-id", |it| key(it, "join(':', [source, id])")),
    ("key-unstable", |it| key(it, "detail.timestamp")),
    ("key-unstable", |it| key(it, "join('-', [user.id, \"sent-at\"])")),
    ("table-missing", |it| it.store = Known::Is(StoreFacts::DynamoDb(claims(), Known::Absent))),
    ("key-schema", |it| is(&mut table(it).key).push(Key::new("sk", "RANGE", "S"))),
    ("key-schema", |it| table(it).key = Known::Is(vec![Key::new("pk", "HASH", "B")])),
    ("parked-index-missing", |it| table(it).parked = Known::Absent),
    ("parked-index-wrong", |it| {
        is(&mut table(it).parked).key = Known::Is(vec![Key::new("parked", "HASH", "S")]);
    }),
    ("parked-index-wrong", |it| {
        is(&mut table(it).parked).projection = Known::Is("KEYS_ONLY".to_owned());
    }),
    ("ttl-off", |it| table(it).ttl = Known::Absent),
    ("ttl-other-attribute", |it| table(it).ttl = Known::Is("lease_until".to_owned())),
    ("pitr-off", |it| table(it).is_restorable = Known::Is(false)),
    ("pitr-off", |it| table(it).is_restorable = Known::Absent),
    ("global-table", |it| table(it).replicas = Known::Is(vec!["eu-central-1".to_owned()])),
    ("store-not-set-up", |it| {
        it.store = Known::Is(StoreFacts::Sql("postgres", Known::Is("no records".to_owned())));
    }),
    ("store-not-kept", |it| it.store = Known::Is(StoreFacts::Memory)),
    ("store-not-kept", |it| it.store = Known::Is(StoreFacts::Sql("sqlite", Known::Absent))),
    ("redis-evicts", |it| redis(it, |it| it.policy = Some("allkeys-lru".to_owned()))),
    ("redis-not-persistent", |it| redis(it, |it| it.is_logged = Some(false))),
    ("redis-replicas-unconfirmed", |it| redis(it, |it| it.replicas = Some(1))),
    ("namespace-shared", |it| it.sharers = Known::Is(vec!["other".to_owned()])),
];

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(judge(&sound()), []);
    let variants: [fn(&mut Deployment); 12] = [
        |it| {
            queue(it).key = Place::key("1234").into();
            it.role = role(|policy| {
                said(policy, "Secrets")["Resource"] = json!("arn:aws:kms:eu-west-1:1:key/1234");
            });
        },
        |it| queue(it).key = Place::key("alias/some").into(),
        |it| queue(it).key = Place::key("alias/aws/sqs").into(),
        // A worker that polls.
        |it| {
            it.source = Known::Absent;
            it.function = Known::Absent;
            queue(it).visibility = seconds(1);
        },
        // Nothing is longer than two weeks.
        |it| {
            queue(it).retention = Known::Is(DAY * 14);
            is(&mut it.dlq).retention = Known::Is(DAY * 14);
        },
        // In a dead-letter queue the age of a FIFO queue's messages begins anew.
        |it| {
            queue(it).is_fifo = Known::Is(true);
            is(&mut it.dlq).is_fifo = Known::Is(true);
            is(&mut it.dlq).retention = Known::Is(DAY);
        },
        |it| job(it).retention = None,
        |it| job(it).key_window = None,
        |it| is(&mut it.source).maximum_concurrency = Known::Absent,
        |it| redis(it, |it| (it.replicas, it.waits_for_replicas) = (Some(1), true)),
        |it| it.store = Known::Is(StoreFacts::Sql("postgres", Known::Absent)),
        // An id of the producer's own, inside of the event.
        |it| key(it, "join('/', [detail.id, detail.order.uuid_of_order])"),
    ];
    for (at, change) in variants.into_iter().enumerate() {
        let mut changed = sound();
        change(&mut changed);
        assert_eq!(judge(&changed), [], "variant {at}");
    }
}

#[test]
fn each_fault_is_found_by_its_code_alone() {
    for (at, (code, change)) in FAULTS.iter().enumerate() {
        let mut changed = sound();
        change(&mut changed);
        let found = judge(&changed);
        let [finding] = &found[..] else { panic!("{code}, number {at}: {found:#?}") };
        assert_eq!(finding.code, *code, "number {at}: {finding:#?}");
        assert_ne!(finding.severity, Severity::CannotJudge, "{finding:#?}");
        assert!(!finding.what.is_empty() && !finding.why.is_empty() && !finding.fix.is_empty());
        assert_eq!(finding.deployment, "shop");
    }
    let planted: BTreeSet<_> = FAULTS.iter().map(|(code, _)| *code).collect();
    assert_eq!(planted, codes().collect(), "each rule has its fault");
}

#[test]
fn what_is_not_known_is_not_judged() {
    let nothing = judge(&Deployment::unknown("shop", "needs permission x:Y"));
    assert_eq!(nothing.len(), codes().count());
    for finding in nothing {
        assert_eq!(finding.severity, Severity::CannotJudge);
        assert_eq!((finding.what.as_str(), finding.fix.as_str()), ("needs permission x:Y", ""));
    }
    let mut partly = sound();
    is(&mut partly.role).statements.clear();
    is(&mut partly.role).unread.push("needs permission iam:GetPolicy".to_owned());
    let codes: Vec<_> = judge(&partly).into_iter().map(|it| (it.code, it.severity)).collect();
    let open = Severity::CannotJudge;
    assert_eq!(codes, [("permission-missing", open), ("permissions-wide", open)]);
}

#[test]
fn a_fault_is_told_though_other_facts_are_not_known() {
    let mut partly = sound();
    partly.jobs = Known::Untold(Untold("there is no jobs.toml here".to_owned()));
    queue(&mut partly).visibility = seconds(29);
    let found = judge(&partly);
    let faults: Vec<_> =
        found.iter().filter(|it| it.severity == Severity::Fault).map(|it| it.code).collect();
    assert_eq!(faults, ["visibility-under-timeout"]);
    assert!(found.len() > 1);
}
