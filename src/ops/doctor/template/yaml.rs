//! YAML with CloudFormation's short tags, as JSON with its long names. JSON is YAML, too.

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

/// How deep a template may be nested.
const DEEPEST: usize = 100;

/// A list or an object that is not at its end.
enum Open {
    List(Vec<Value>),
    /// With the name whose value comes next.
    Object(Map<String, Value>, Option<String>),
}

/// Reads one document.
pub fn read(text: &str) -> Result<Value, String> {
    let mut open: Vec<(Open, Option<String>)> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| format!("this is no YAML: {error}"))?;
        let line = span.start.line();
        let (value, tag) = match event {
            Event::Scalar(text, style, _, tag) => (scalar(&text, style), long(tag.as_deref())),
            Event::SequenceStart(_, tag) => {
                open.push((Open::List(Vec::new()), long(tag.as_deref())));
                if open.len() > DEEPEST {
                    return Err(format!("line {line}: it is nested over {DEEPEST} times"));
                }
                continue;
            }
            Event::MappingStart(_, tag) => {
                open.push((Open::Object(Map::new(), None), long(tag.as_deref())));
                if open.len() > DEEPEST {
                    return Err(format!("line {line}: it is nested over {DEEPEST} times"));
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some((Open::List(values), tag)) => (Value::Array(values), tag),
                Some((Open::Object(fields, _), tag)) => (Value::Object(fields), tag),
                None => return Err(format!("line {line}: nothing is open here")),
            },
            Event::Alias(_) => {
                return Err(format!("line {line}: CloudFormation knows no aliases"));
            }
            _ => continue,
        };
        let value = tagged(value, tag);
        match open.last_mut() {
            // One document is all there is to a template.
            None => return Ok(value),
            Some((Open::List(values), _)) => values.push(value),
            Some((Open::Object(fields, name), _)) => match (name.take(), value) {
                (Some(name), value) => {
                    fields.insert(name, value);
                }
                (None, Value::String(text)) => *name = Some(text),
                (None, value @ (Value::Number(_) | Value::Bool(_) | Value::Null)) => {
                    *name = Some(value.to_string());
                }
                (None, _) => return Err(format!("line {line}: a name must be a text")),
            },
        }
    }
    Err("it is empty".to_owned())
}

/// The long name of a short tag.
fn long(tag: Option<&Tag>) -> Option<String> {
    let tag = tag.filter(|tag| tag.handle == "!")?;
    Some(match tag.suffix.as_str() {
        name @ ("Ref" | "Condition") => name.to_owned(),
        name => format!("Fn::{name}"),
    })
}

fn tagged(value: Value, tag: Option<String>) -> Value {
    let Some(name) = tag else { return value };
    let value = match value {
        Value::String(text) if name == "Fn::GetAtt" => match text.split_once('.') {
            Some((resource, attribute)) => Value::from(vec![resource, attribute]),
            None => Value::String(text),
        },
        value => value,
    };
    Value::Object(Map::from_iter([(name, value)]))
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    // An account's id that begins with zero is no number.
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => Value::from(number),
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_tags_are_long_names() {
        let text = r#"
A: !Ref Queue
B: !GetAtt Queue.Arn
C: !If [Is, !Sub "${Queue}-x", [1, true, "2", 012, null]]
D: !Not [!Condition Is]
E:
  Fn::Join: ["", [a, b]]
F: !FindInMap
  - Map
  - !Ref Size
  - Value
10: {x: 2012-10-17}
"#;
        let expected = json!({
            "A": {"Ref": "Queue"},
            "B": {"Fn::GetAtt": ["Queue", "Arn"]},
            "C": {"Fn::If": ["Is", {"Fn::Sub": "${Queue}-x"}, [1, true, "2", "012", null]]},
            "D": {"Fn::Not": [{"Condition": "Is"}]},
            "E": {"Fn::Join": ["", ["a", "b"]]},
            "F": {"Fn::FindInMap": ["Map", {"Ref": "Size"}, "Value"]},
            "10": {"x": "2012-10-17"},
        });
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read(&expected.to_string()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_template_is_refused_where_it_is() {
        assert!(read("a: [").unwrap_err().contains("line"));
        assert!(read("a: &x 1\nb: *x").unwrap_err().contains("line 2"));
        assert!(read(&"[".repeat(101)).unwrap_err().contains("nested"));
        assert_eq!(read("").unwrap_err(), "it is empty");
    }
}
