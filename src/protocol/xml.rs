//! SQS takes the characters of XML 1.0 alone.

/// Whether SQS takes this text.
pub(crate) fn is_xml(text: &str) -> bool {
    let fits = |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    text.chars().all(fits)
}

/// The same JSON, in characters that SQS takes: it has escaped all others already.
pub(crate) fn xml_json(json: String) -> String {
    match is_xml(&json) {
        true => json,
        false => json.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_same_in_characters_that_sqs_takes() {
        let json = "\"\\u0000 \u{7f} \u{fffd}\u{fffe}\u{ffff}\u{10ffff}\"".to_owned();
        assert!(!is_xml(&json));
        let safe = xml_json(json);
        assert!(is_xml(&safe), "{safe}");
        assert_eq!(safe, "\"\\u0000 \u{7f} \u{fffd}\\ufffe\\uffff\u{10ffff}\"");
    }
}
