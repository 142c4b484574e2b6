//! Faults of a jobs file: each named, with its line and what to write instead.

use super::*;

const FINE: &str = r#"
[defaults]
retention = "45d"
retry = { policy = "exponential", base = "2s", cap = "15m", attempts = 5 }

[job."invoice.finalize"]
effect = "http"
guarantee = "keyed"
method = "POST"
url = "https://api.example.com/v1/charges"
key_header = "Idempotency-Key"
key_window = "24h"
body = "form"
secret = { header = "Authorization", env = "TOKEN" }
timeout = "10s"
allow_hosts = ["127.0.0.1:8080"]
"#;

#[test]
fn a_whole_job_is_read() {
    assert_eq!(faults(FINE), "");
}

#[test]
fn a_time_may_be_as_long_as_it_can_be_written() {
    assert_eq!(
        faults(&FINE.replace("timeout = \"10s\"", "timeout = \"18446744073709551614s\"")),
        ""
    );
}

#[test]
fn a_secret_may_be_kept_elsewhere() {
    for place in ["ssm", "secretsmanager"] {
        assert_eq!(faults(&FINE.replace("env = \"TOKEN\"", &format!("{place} = \"/t\""))), "");
    }
}

#[test]
fn a_secret_that_is_written_out_is_refused_and_not_shown() {
    let faults = faults(
        &FINE.replace("{ header = \"Authorization\", env = \"TOKEN\" }", "\"Bearer s3cret\""),
    );
    assert!(
        faults.contains("say where it is kept") && faults.starts_with("jobs.toml:"),
        "{faults}"
    );
    assert!(!faults.contains("s3cret"), "{faults}");
}

#[test]
fn the_shipped_jobs_file_is_fine() {
    assert_eq!(faults(include_str!("../../jobs.toml")), "");
}

#[test]
fn each_fault_names_its_line_and_the_fix() {
    let cases = [
        (
            "timeout = \"10s\"",
            "timeuot = \"10s\"",
            "15: job \"invoice.finalize\": unknown field `timeuot`, expected",
        ),
        (
            "timeout = \"10s\"",
            "timeuot = \"10s\"",
            "and every job has effect, guarantee, retention",
        ),
        ("guarantee = \"keyed\"", "", "no guarantee is named"),
        ("guarantee = \"keyed\"", "guarantee = \"transactional\"", "cannot give guarantee"),
        ("guarantee = \"keyed\"", "guarantee = \"at-least-once\"", "go with guarantee = \"keyed\""),
        ("guarantee = \"keyed\"", "guarantee = \"at-most-once\"", "go with guarantee = \"keyed\""),
        ("guarantee = \"keyed\"", "guarantee = \"reconcile\"", "key_window goes with"),
        ("key_window = \"24h\"", "ask = { url = \"/charges\" }", "ask: url:"),
        (
            "key_window = \"24h\"",
            "ask = { url = \"https://x.example/\", found = \"data[\" }",
            "ask: found \"data[\":",
        ),
        ("key_window = \"24h\"", "provider = \"strike\"", "write \"stripe\", or leave it out"),
        (
            "key_window = \"24h\"",
            "key_window = \"48h\"\nprovider = \"stripe\"",
            "is longer than this provider remembers a key",
        ),
        ("guarantee = \"keyed\"", "guarantee = \"sometimes\"", "is not known"),
        ("\"Idempotency-Key\"", "\"authorization\"", "is the secret's header, too"),
        ("\"Idempotency-Key\"", "\"Content-Type\"", "belongs to the request itself"),
        ("\"Authorization\"", "\"host\"", "belongs to the request itself"),
        ("effect = \"http\"", "", "no effect is named"),
        ("effect = \"http\"", "effect = \"fax\"", "this version has \"http\""),
        ("method = \"POST\"", "method = \"post\"", "write POST"),
        ("method = \"POST\"", "method = \"GET\"", "remove body"),
        ("https://api.example.com/v1/charges", "https://{host}/", "host must be written out"),
        ("https://api.example.com/v1/charges", "charges", "url:"),
        ("body = \"form\"", "body = \"xml\"", "\"json\", \"form\" or \"raw\""),
        ("env = \"TOKEN\"", "env = \"NOTHING\"", "variable NOTHING is not set"),
        ("env = \"TOKEN\"", "env = \"\"", "name the variable, parameter or secret"),
        (", env = \"TOKEN\"", "", "add env, ssm or secretsmanager"),
        ("env = \"TOKEN\"", "env = \"TOKEN\", ssm = \"/t\"", "leave one of env, ssm"),
        ("env = \"TOKEN\"", "vault = \"t\"", "unknown field `vault`"),
        (
            "timeout = \"10s\"",
            "timeout = 10",
            "jobs.toml:15: job \"invoice.finalize\": invalid type",
        ),
        ("timeout = \"10s\"", "timeout = \"soon\"", "is no duration"),
        ("retention = \"45d\"", "retention = \"1h\"", "is shorter than key_window"),
        ("retention = \"45d\"", "retention = \"always\"", "\"forever\""),
        ("\"127.0.0.1:8080\"", "\"a b\"", "is not a host"),
        ("attempts = 5", "", "missing field `attempts`"),
        ("attempts = 5", "attempts = 0", "nonzero"),
    ];
    for (right, wrong, said) in cases {
        assert!(FINE.contains(right), "{right}");
        let faults = faults(&FINE.replace(right, wrong));
        assert!(faults.contains(said), "{wrong}: {faults}");
        assert!(faults.starts_with("jobs.toml:"), "{faults}");
        assert!(!faults.contains("s3cret"));
    }
}

const MESSAGE: &str = r#"
[message]
unwrap = "eventbridge"
key = "id"
job = '"detail-type"'
key_attribute = "dedupe"
job_attribute = "task"
default_job = "order.place"

[job."order.place"]
effect = "http"
guarantee = "at-least-once"
url = "https://api.example.com/"
fingerprint = ["amount"]
"#;

#[test]
fn each_fault_of_the_message_table_names_its_line_and_the_fix() {
    assert_eq!(faults(MESSAGE), "");
    let cases = [
        ("\"eventbridge\"", "\"kafka\"", "3: message: unwrap \"kafka\" is not known; write"),
        ("\"eventbridge\"", "[\"sns\", \"s4\"]", "3: message: unwrap \"s4\""),
        ("\"eventbridge\"", "7", "3: unwrap is text, or a list"),
        ("key = \"id\"", "kye = \"id\"", "4: unknown field `kye`"),
        ("key = \"id\"", "key = \"id.\"", "4: message: key is no JMESPath expression"),
        ("key = \"id\"", "key = \"detail-type\"", "4: message: key is no JMESPath"),
        ("key = \"id\"", "key = \"digest(id)\"", "4: message: key is no JMESPath"),
        ("key = \"id\"", "key = \"id || 'none'\"", "4: message: key gives something"),
        ("'\"detail-type\"'", "'['", "5: message: job is no JMESPath expression"),
        ("\"dedupe\"", "\"\"", "6: message: \"\" is no attribute's name"),
        ("\"dedupe\"", "\"de dupe\"", "6: message: \"de dupe\" is no attribute's name"),
        ("\"dedupe\"", "\"task\"", "6: message: key and job cannot be one attribute"),
        ("default_job = \"order.place\"", "default_job = \"order\"", "8: message: default_job"),
        ("[\"amount\"]", "\"on\"", "14: job \"order.place\": fingerprint \"on\" is not known"),
        ("[\"amount\"]", "[]", "names no field; write \"off\""),
        ("[\"amount\"]", "[\"amount\"]\nbody = \"raw\"", "a raw body has no fields"),
        ("[\"amount\"]", "7", "14: job \"order.place\": fingerprint is a list"),
    ];
    for (right, wrong, said) in cases {
        assert!(MESSAGE.contains(right), "{right}");
        let faults = faults(&MESSAGE.replacen(right, wrong, 1));
        assert!(faults.starts_with("jobs.toml:") && faults.contains(said), "{wrong}: {faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}

#[test]
fn expressions_give_the_names_of_real_events() {
    let derived = |key: &str, body: &str| {
        let mut faults = Faults::new(Path::new("jobs.toml"));
        let source = MESSAGE.replace("key = \"id\"", &format!("key = {key:?}"));
        let router = parse(&source, Path::new(""), &|_| None, &mut faults).unwrap();
        assert_eq!(faults.to_string(), "");
        let derive = router.message_rules().key.clone().unwrap();
        derive(&serde_json::from_str(body).unwrap())
    };
    let s3 = include_str!("../../tests/fixtures/s3_put.json");
    let version = "Records[0].s3.[bucket.name, object.key, object.versionId || object.sequencer] | join('/', @)";
    let gives = derived(version, s3);
    assert_eq!(gives, "amzn-s3-demo-bucket/Happy+Face.jpg/096fKKXTRTtl3on89fVO.nfljtsv6qko");
    // A part that is missing makes no key of the rest.
    assert!(derived(version, &s3.replace("versionId", "x").replace("sequencer", "y")).is_null());
    let event = include_str!("../../tests/fixtures/eventbridge.json");
    assert_eq!(derived("id", event), "53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa");
    assert_eq!(derived("detail.order.total", event), 4990);
    assert_eq!(derived("id", "{\"id\":18446744073709551615}"), u64::MAX);
    assert!(derived("id", "[]").is_null());
    assert!(derived("join('-', [id])", "{\"id\":7}").is_null());
}

#[test]
fn a_fields_fault_is_at_its_own_line() {
    let wrong = FINE.replace("guarantee = \"keyed\"", "guarantee = \"transactional\"");
    let faults = faults(&wrong);
    assert!(faults.starts_with("jobs.toml:8: job \"invoice.finalize\": the http"), "{faults}");
}

#[test]
fn all_faults_of_all_jobs_are_named_at_once() {
    let faults = faults("[job.a]\neffect = \"http\"\n[job.b]\nguarantee = \"keyed\"\n");
    assert!(faults.contains("jobs.toml:1: job \"a\": no guarantee"), "{faults}");
    assert!(faults.contains("job \"a\": no url"), "{faults}");
    assert!(faults.contains("jobs.toml:3: job \"b\": no effect"), "{faults}");
}

#[test]
fn a_file_that_is_not_there_or_declares_nothing_says_so() {
    let missing = load(Path::new("nowhere.toml"), &|_| None).unwrap_err().to_string();
    assert!(missing.contains("nowhere.toml") && missing.contains("ONLYONCE_JOBS"), "{missing}");
    assert!(faults("").contains("no job is declared"));
}

#[test]
fn a_job_that_is_no_table_says_what_to_write() {
    let said = faults("job.a = 7\n");
    assert_eq!(said, "jobs.toml:1: job \"a\" is no table; write [job.\"a\"]");
    assert!(faults("job = 7\n").starts_with("jobs.toml:1: invalid type"));
    assert!(faults("jobs = 7\n").contains("expected one of `defaults`, `message`"));
}
