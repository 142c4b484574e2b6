//! Whatever stands in a jobs file: it is read, or its faults are named.

use serde_json::{Value, json};

use super::expression::compile;
use super::jobs_file::faults;
use crate::fuzz::fuzz;

#[test]
fn a_jobs_file_is_read_or_its_faults_are_named() {
    fuzz("jobs", |source| {
        let faults = faults(source);
        // A line of the file is shown with each: none can be longer than the file itself.
        let most = faults.lines().map(str::len).max().unwrap_or_default();
        assert!(most <= source.len() + 1000, "{most}");
        assert!(!faults.contains("s3cret"), "a secret in a fault");
    });
}

#[test]
fn an_expression_is_compiled_or_refused_and_its_answer_is_no_panic() {
    let body = json!({"a": [1, {"b": "x"}, null], "s3": {"object": {"key": "k"}}, "n": -0.5});
    fuzz("expression", |text| {
        if let Ok(derive) = compile(text) {
            for body in [&body, &Value::Null, &json!([]), &json!("text")] {
                let found = derive(body);
                assert!(found.to_string().len() <= 1024 * 1024, "it has grown");
            }
        }
    });
}

/// Each kind of nesting, as deep as its length allows: the stack holds it.
#[test]
fn the_deepest_expression_is_compiled_and_searched() {
    let body = json!({"a": {"a": [[[1]]]}});
    for (piece, end) in [
        ("(", "a"),
        ("!", "a"),
        ("[::1]", ""),
        ("[]", ""),
        ("[*]", ""),
        ("a.", "a"),
        ("a|", "a"),
        ("a||", "a"),
        ("&", "a"),
        ("[", "a"),
        ("{a:", "a"),
        ("[?", "a"),
        ("abs(", "a"),
        ("*.", "a"),
        ("a&&", "a"),
        ("a[?a].", "a"),
        ("not_null(", "a"),
        ("[0]", ""),
    ] {
        let close = match piece.chars().find(|c| "([{".contains(*c)) {
            _ if piece.ends_with(']') => "",
            Some('(') => ")",
            Some('[') => "]",
            Some('{') => "}",
            _ => "",
        };
        let times = (1024 - end.len()) / (piece.len() + close.len());
        let text = piece.repeat(times) + end + &close.repeat(times);
        if let Ok(derive) = compile(&text) {
            derive(&body);
        }
        // And left open.
        let _ = compile(&piece.repeat(1024 / piece.len()));
        assert!(compile(&piece.repeat(1025)).is_err());
    }
}
