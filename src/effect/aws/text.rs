//! A text with `{field}` from the payload.

use serde_json::Value;

use crate::payload::Payload;

/// A text with `{field}` from the payload's top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTemplate(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

/// Why a text is no template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A brace is opened and not closed.
    #[error("a {{ without its }}")]
    Open,
    /// Nothing is between the braces.
    #[error("{{}} names no field")]
    NoField,
}

impl TextTemplate {
    /// Reads a template.
    pub fn new(text: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (field, after) = after.split_once('}').ok_or(InvalidTemplate::Open)?;
            if field.is_empty() {
                return Err(InvalidTemplate::NoField);
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Field(field.to_owned()));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The text for this payload. The error names the field, and quotes nothing.
    pub(super) fn fill(&self, what: &str, payload: &Payload) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Field(name) => {
                    let value = payload.value().and_then(|value| value.get(name));
                    let value = value.and_then(scalar).ok_or_else(|| {
                        format!("the {what} needs the payload's field {name:?} as text or a number")
                    })?;
                    text.push_str(&value);
                }
            }
        }
        Ok(text)
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// A message group: 1 to 128 letters, digits and punctuation.
pub(super) fn group(template: &TextTemplate, payload: &Payload) -> Result<String, String> {
    let group = template.fill("group", payload)?;
    let fits = (1..=128).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(group)
    } else {
        Err("the group must come to 1 to 128 letters, digits and punctuation of ASCII, without \
             spaces; choose a field that does"
            .to_owned())
    }
}

/// A mail's subject, as SNS takes it: up to 100 printable characters of ASCII, none of them first
/// that is no letter, digit or punctuation.
pub(super) fn subject(template: &TextTemplate, payload: &Payload) -> Result<String, String> {
    let subject = template.fill("subject", payload)?;
    let is_printable = subject.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    let begins = subject.bytes().next().is_some_and(|b| b.is_ascii_graphic());
    if is_printable && begins && subject.len() <= 100 {
        Ok(subject)
    } else {
        Err("the subject must come to 1 to 100 printable characters of ASCII, and not begin with \
             a space; shorten it, or leave out the field that does not fit"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, body: &str) -> Result<String, String> {
        let payload = Payload::json(body).unwrap();
        TextTemplate::new(template).unwrap().fill("group", &payload)
    }

    #[test]
    fn fields_are_filled_and_a_missing_one_is_named_without_its_value() {
        assert_eq!(fill("c-{id}/{n}{ok}", r#"{"id":"a","n":5,"ok":true}"#).unwrap(), "c-a/5true");
        assert_eq!(fill("fixed", "[]").unwrap(), "fixed");
        for body in ["{}", "[]", r#"{"id":{"card":"4242"}}"#, r#"{"id":null}"#] {
            let error = fill("{id}", body).unwrap_err();
            assert!(error.contains("\"id\"") && !error.contains("4242"), "{error}");
        }
    }

    #[test]
    fn a_brace_needs_its_other_and_a_name() {
        assert_eq!(TextTemplate::new("a{b"), Err(InvalidTemplate::Open));
        assert_eq!(TextTemplate::new("a{}"), Err(InvalidTemplate::NoField));
    }

    #[test]
    fn a_group_and_a_subject_are_what_aws_takes() {
        let of = |check: fn(&TextTemplate, &Payload) -> Result<String, String>, text: &str| {
            let payload = Payload::json(serde_json::json!({ "x": text }).to_string()).unwrap();
            check(&TextTemplate::new("{x}").unwrap(), &payload).is_ok()
        };
        for (text, is_group, is_subject) in [
            ("customer-7", true, true),
            ("a b", false, true),
            (" a", false, false),
            ("", false, false),
            ("é", false, false),
            ("a\nb", false, false),
            (&"x".repeat(101), true, false),
            (&"x".repeat(129), false, false),
        ] {
            assert_eq!((of(group, text), of(subject, text)), (is_group, is_subject), "{text:?}");
        }
    }
}
