//! Whatever stands in a jobs file: it is read, or its faults are named.

use serde_json::{Value, json};

use super::expression::compile;
use super::jobs_file::faults;
use crate::fuzz::fuzz;

#[cfg_attr(test, test)]
pub(crate) fn a_jobs_file_is_read_or_its_faults_are_named() {
    fuzz("jobs", |source| {
        let faults = faults(source);
        // What is wrong is shown with each, escaped: none can be longer than the file itself so.
        let most = faults.lines().map(str::len).max().unwrap_or_default();
        assert!(most <= 10 * source.len() + 1000, "{most}");
        assert!(!faults.contains("s3cret"), "a secret in a fault");
    });
}

#[cfg_attr(test, test)]
pub(crate) fn an_expression_is_compiled_or_refused_and_its_answer_is_no_panic() {
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

/// Each kind of nesting, as deep as is taken: the stack holds it.
#[test]
fn the_deepest_expression_is_compiled_and_searched() {
    let body = json!({"a": {"a": [[[1]]]}});
    for (open, end, close) in [
        ("(", "a", ")"),
        ("[", "a", "]"),
        ("{a:", "a", "}"),
        ("[?", "a", "]"),
        ("not_null(", "a", ")"),
        ("map(&", "a", ",a)"),
        ("a[?a].", "a", ""),
        ("[::1]", "", ""),
        ("[]", "", ""),
        ("[*]", "", ""),
        ("*.", "a", ""),
        ("!", "a", ""),
        ("&", "a", ""),
        ("a.", "a", ""),
        ("a|", "a", ""),
        ("a||", "a", ""),
        ("a&&", "a", ""),
        ("a==", "a", ""),
        ("a<", "a", ""),
    ] {
        let nests = (open.to_owned() + close).matches(|c| "([{}])!&|.*<=>".contains(c)).count();
        for times in [64 / nests, 32 / nests] {
            let text = open.repeat(times) + end + &close.repeat(times);
            if let Ok(derive) = compile(&text) {
                derive(&body);
            }
            // And left open.
            if let Ok(derive) = compile(&open.repeat(times)) {
                derive(&body);
            }
        }
        let said = compile(&open.repeat(200)).err().unwrap();
        assert!(said.contains("brackets"), "{open}: {said}");
    }
}
