//! Faults of a jobs file: each named, with its line and what to write instead.

use super::*;

fn faults(source: &str) -> String {
    let mut faults = Faults::new(Path::new("jobs.toml"));
    let env = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
    parse(source, &env, &mut faults);
    faults.to_string()
}

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
fn the_shipped_jobs_file_is_fine() {
    assert_eq!(faults(include_str!("../../jobs.toml")), "");
}

#[test]
fn each_fault_names_its_line_and_the_fix() {
    let cases = [
        ("timeout = \"10s\"", "timeuot = \"10s\"", "jobs.toml:15: unknown field `timeuot`"),
        ("guarantee = \"keyed\"", "", "no guarantee is named"),
        ("guarantee = \"keyed\"", "guarantee = \"transactional\"", "cannot give guarantee"),
        ("guarantee = \"keyed\"", "guarantee = \"at-least-once\"", "go with guarantee = \"keyed\""),
        ("guarantee = \"keyed\"", "guarantee = \"sometimes\"", "is not known"),
        ("effect = \"http\"", "", "no effect is named"),
        ("effect = \"http\"", "effect = \"fax\"", "this version has \"http\""),
        ("method = \"POST\"", "method = \"post\"", "write POST"),
        ("method = \"POST\"", "method = \"GET\"", "remove body"),
        ("https://api.example.com/v1/charges", "https://{host}/", "host must be written out"),
        ("https://api.example.com/v1/charges", "charges", "url:"),
        ("body = \"form\"", "body = \"xml\"", "\"json\", \"form\" or \"raw\""),
        ("env = \"TOKEN\"", "env = \"NOTHING\"", "variable NOTHING is not set"),
        ("timeout = \"10s\"", "timeout = 10", "jobs.toml:15: invalid type"),
        ("timeout = \"10s\"", "timeout = \"soon\"", "is no duration"),
        ("retention = \"45d\"", "retention = \"1h\"", "is shorter than key_window"),
        ("retention = \"45d\"", "retention = \"always\"", "\"forever\""),
        ("\"127.0.0.1:8080\"", "\"a b\"", "is not a host"),
        ("attempts = 5", "", "missing field `attempts`"),
    ];
    for (right, wrong, said) in cases {
        assert!(FINE.contains(right), "{right}");
        let faults = faults(&FINE.replace(right, wrong));
        assert!(faults.contains(said), "{wrong}: {faults}");
        assert!(faults.starts_with("jobs.toml:"), "{faults}");
        assert!(!faults.contains("s3cret"));
    }
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
