//! Text with `{field}` for the payload's top-level fields; `{{` and `}}` are braces.

use std::fmt;

use serde_json::Value;

use crate::payload::Payload;

/// A large field that is named often could come to any size.
const MAX_FILLED: usize = 8 * 1024 * 1024;

/// Text with fields to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Field(String),
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTemplate(pub(super) String);

impl fmt::Display for InvalidTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg_attr(not(feature = "jobs-file"), allow(dead_code, reason = "a url uses less"))]
impl Template {
    /// Reads a template. What is not understood is refused, with its line if there are several.
    pub fn new(text: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut written = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            let wrong = |why: String| {
                let line = text.len() - from.len();
                let line = text.get(..line).map_or(0, |before| before.matches('\n').count());
                let place = if text.trim_end().contains('\n') {
                    format!("line {}: ", line + 1)
                } else {
                    String::new()
                };
                InvalidTemplate(place + &why)
            };
            written.push_str(before);
            rest = if let Some(after) = from.strip_prefix("{{") {
                written.push('{');
                after
            } else if let Some(after) = from.strip_prefix("}}") {
                written.push('}');
                after
            } else if let Some(after) = from.strip_prefix('{') {
                let (field, after) = after
                    .split_once('}')
                    .ok_or_else(|| wrong("a { without its }; write {{ for a brace".to_owned()))?;
                is_name(field).map_err(wrong)?;
                parts.push(Part::Text(std::mem::take(&mut written)));
                parts.push(Part::Field(field.to_owned()));
                after
            } else {
                return Err(wrong("a } without its {; write }} for a brace".to_owned()));
            };
        }
        written.push_str(rest);
        parts.push(Part::Text(written));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self { parts })
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The fields that it needs.
    #[cfg(feature = "email")]
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The field, if the template is one field and nothing else.
    pub fn field_alone(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [Part::Field(field)] => Some(field),
            _ => None,
        }
    }

    /// The text for this payload. `what` names it in errors, which name the field and never its
    /// value.
    pub fn fill(&self, payload: &Payload, what: &str) -> Result<String, String> {
        self.fill_with(payload, what, |value, filled| filled.push_str(value))
    }

    /// The same, each field's value written by `write`.
    pub fn fill_with(
        &self,
        payload: &Payload,
        what: &str,
        write: impl Fn(&str, &mut String),
    ) -> Result<String, String> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(name) => write(&field_text(payload, name, what)?, &mut filled),
            }
            if filled.len() > MAX_FILLED {
                return Err(format!("{what} would be over 8 MiB"));
            }
        }
        Ok(filled)
    }
}

fn is_name(field: &str) -> Result<(), String> {
    if field.is_empty() {
        return Err("{} names no field".to_owned());
    }
    if field.chars().all(|c| c.is_alphanumeric() || "_-@$".contains(c)) {
        return Ok(());
    }
    // A whole style sheet may stand between two braces.
    let shown: String =
        field.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    Err(format!(
        "{{{shown}}} is no field of the payload's top level: a name has letters, digits, _ and -; \
         write {{{{ and }}}} for braces"
    ))
}

/// A top-level field.
pub(crate) fn field<'a>(payload: &'a Payload, name: &str) -> Option<&'a Value> {
    payload.value().and_then(|value| value.get(name))
}

/// A top-level field as text.
pub(crate) fn field_text(payload: &Payload, name: &str, what: &str) -> Result<String, String> {
    let text = field(payload, name).and_then(scalar_text);
    text.ok_or_else(|| format!("{what} needs the payload's field {name:?} as text or a number"))
}

/// A scalar as it stands in text; `None` for null and for what is no scalar.
pub(crate) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, body: &str) -> Result<String, String> {
        let template = Template::new(template).unwrap();
        template.fill(&Payload::json(body).unwrap(), "the text")
    }

    #[test]
    fn fields_are_filled_and_doubled_braces_are_braces() {
        assert_eq!(filled("Hi {name}, {n}!", r#"{"name":"Ada","n":3}"#).unwrap(), "Hi Ada, 3!");
        assert_eq!(
            filled("p {{ color: red }} {a}", r#"{"a":true}"#).unwrap(),
            "p { color: red } true"
        );
        assert_eq!(filled("", "{}").unwrap(), "");
        // What is filled in is no template.
        assert_eq!(filled("{a}", r#"{"a":"{b}"}"#).unwrap(), "{b}");
    }

    #[test]
    fn what_cannot_be_filled_names_the_field_alone() {
        for body in ["{}", r#"{"a":null}"#, r#"{"a":["4242"]}"#, "[4242]"] {
            let error = filled("{a}", body).unwrap_err();
            assert_eq!(error, "the text needs the payload's field \"a\" as text or a number");
        }
    }

    #[test]
    fn a_field_that_is_named_often_has_a_limit() {
        let body = format!("{{\"a\":\"{}\"}}", "x".repeat(1024 * 1024));
        assert!(filled("{a}{a}", &body).is_ok());
        assert_eq!(filled(&"{a}".repeat(9), &body).unwrap_err(), "the text would be over 8 MiB");
    }

    #[test]
    fn unknown_syntax_is_refused_with_its_line() {
        let cases = [
            ("a {", "a { without its }"),
            ("a } b", "a } without its {"),
            ("{}", "names no field"),
            ("{user.name}", "{user.name} is no field of the payload's top level"),
            ("p { color: red }", "write {{ and }} for braces"),
            ("one\ntwo {% if %}\n", "line 2: {% if %} is no field"),
        ];
        for (text, said) in cases {
            let error = Template::new(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(!Template::new("{").unwrap_err().to_string().contains("line"));
    }
}
