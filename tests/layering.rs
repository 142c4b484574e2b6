//! Imports point down, and AWS is named where it belongs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// A module, and the modules of this crate it may name.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("protocol", &["protocol"]),
    ("runtime", &["protocol", "runtime"]),
    ("error", &["protocol", "error"]),
    ("payload", &["protocol", "payload"]),
    ("rules", &[]),
    ("store", &["protocol", "runtime", "error", "sdk", "store"]),
    ("sdk", &[]),
    ("secret", &["protocol", "runtime", "error", "sdk", "secret", "test_util"]),
    ("telemetry", &["protocol", "runtime", "telemetry"]),
    // A handler is called with a context, which declares effects, which the service settles.
    ("handler", &["protocol", "error", "payload", "rules", "context", "handler"]),
    (
        "context",
        &["protocol", "runtime", "error", "store", "effect", "service", "telemetry", "context"],
    ),
    (
        "effect",
        &[
            "protocol",
            "runtime",
            "error",
            "payload",
            "sdk",
            "secret",
            "store",
            "context",
            "handler",
            "telemetry",
            "effect",
        ],
    ),
    (
        "service",
        &[
            "protocol",
            "runtime",
            "error",
            "payload",
            "rules",
            "store",
            "handler",
            "context",
            "telemetry",
            "service",
            "test_util",
        ],
    ),
    ("producer", &["protocol", "runtime", "rules", "sdk", "producer"]),
    ("front", &["protocol", "runtime", "error", "rules", "service", "telemetry", "front"]),
    (
        "config",
        &[
            "protocol", "runtime", "error", "store", "sdk", "rules", "secret", "handler", "effect",
            "config",
        ],
    ),
    // A job and a store of its own, for a worker that is started with its switch.
    (
        "drill",
        &[
            "protocol", "runtime", "error", "rules", "store", "handler", "context", "config",
            "sdk", "drill",
        ],
    ),
    (
        "ops",
        // A function's environment is read as the worker reads it.
        &[
            "protocol", "runtime", "error", "rules", "store", "handler", "effect", "service",
            "config", "front", "producer", "local", "sdk", "payload", "drill", "ops",
        ],
    ),
    ("outbox", &["protocol", "runtime", "error", "store"]),
    ("relay", &["protocol", "runtime", "error", "store", "service", "front", "relay"]),
    ("local", &["protocol", "runtime", "error", "service", "front", "local"]),
    (
        "test_util",
        &[
            "protocol",
            "runtime",
            "error",
            "store",
            "handler",
            "context",
            "service",
            "front",
            "local",
            "test_util",
        ],
    ),
    // What tests alone have, each module's own.
    ("fuzz", &["config", "effect", "front", "payload", "fuzz"]),
    ("lambda", &["protocol", "config", "error", "front", "relay", "service", "sdk", "telemetry"]),
    (
        "serve",
        &[
            "config",
            "drill",
            "runtime",
            "error",
            "front",
            "handler",
            "lambda",
            "ops",
            "relay",
            "service",
            "sdk",
            "telemetry",
        ],
    ),
];

/// Where AWS types may be named.
const NAMES_AWS: &[&str] = &[
    "sdk.rs",
    "secret/aws.rs",
    "effect/aws/",
    "effect/email/ses.rs",
    "store/dynamodb/",
    "front/",
    "producer/",
    "drill/",
    "ops/",
    "bin/",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
    found
}

/// Every module named as `crate::module`, also inside `crate::{a, b}`.
fn named(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let take = |part: &str| -> String {
            part.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            Some(rest) => {
                let list = rest.split('}').next().unwrap();
                modules.extend(list.split(',').map(take).filter(|name| !name.is_empty()));
            }
            None => modules.push(take(rest)),
        }
    }
    modules
}

#[test]
fn imports_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let module = file.split(['/', '.']).next().unwrap();
        if matches!(module, "lib" | "bin") {
            continue;
        }
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == module) else {
            panic!("src/{file}: say in tests/layering.rs what {module} may name")
        };
        for name in named(&fs::read_to_string(&path).unwrap()) {
            if name != "fuzz" && !allowed.contains(&name.as_str()) {
                faults.push(format!("src/{file} names crate::{name}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn aws_is_named_where_it_belongs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let names_aws = ["aws_sdk", "aws_config", "aws_smithy", "lambda_runtime"]
            .iter()
            .any(|name| text.contains(name));
        let is_allowed = NAMES_AWS.iter().any(|place| file.starts_with(place));
        assert!(!names_aws || is_allowed, "src/{file} names AWS types");
    }
}

/// Clients of stores, each named in its store alone.
const CLIENTS: &[(&str, &str)] = &[("rusqlite", "store/sqlite"), ("::redis::", "store/redis")];

#[test]
fn a_stores_client_is_named_in_its_store_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let text = fs::read_to_string(&path).unwrap();
        for (client, store) in CLIENTS {
            // Our own module of that name is none.
            let names = text.lines().any(|line| {
                line.contains(client) && !line.contains("self::") && !line.contains("store::")
            });
            let is_store = path.starts_with(src.join(store));
            assert!(!names || is_store, "{} names {client}", path.display());
        }
    }
}

#[test]
fn postgres_is_named_in_its_store_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for path in sources(&src) {
        let text = fs::read_to_string(&path).unwrap();
        let names_postgres = text.contains("tokio_postgres") || text.contains("deadpool");
        let is_store = path.starts_with(src.join("store/postgres"));
        assert!(!names_postgres || is_store, "{} names tokio_postgres", path.display());
    }
}

#[test]
fn the_protocol_is_pure() {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol");
    for path in sources(&protocol).iter().filter(|path| !path.ends_with("claim_tests.rs")) {
        let text = fs::read_to_string(path).unwrap();
        for impure in ["async ", "SystemTime", "Instant", "fastrand", "uuid::", "serde", "tokio"] {
            assert!(!text.contains(impure), "{} names {impure:?}", path.display());
        }
    }
}
