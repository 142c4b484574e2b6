//! `--parameter Name=Value`, and what a template says of its parameters.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::Value;

/// A parameter that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub value: String,
}

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("{text:?} is no parameter; write Name=Value"))?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The name of a parameter that is given and that the template does not have.
pub(super) fn unknown<'g>(template: &Value, given: &'g [Parameter]) -> Option<&'g str> {
    let declares = |name: &str| template.get("Parameters").is_some_and(|it| it.get(name).is_some());
    given.iter().map(|it| it.name.as_str()).find(|name| !declares(name))
}

/// Each parameter's value: as it is given, or by default; none where that is only known elsewhere.
pub(super) fn values(template: &Value, given: &[Parameter]) -> BTreeMap<String, Option<Value>> {
    let mut values = BTreeMap::new();
    if let Some(Value::Object(declared)) = template.get("Parameters") {
        for (name, about) in declared {
            let kind = about.get("Type").and_then(Value::as_str).unwrap_or("String");
            let found = given.iter().rev().find(|it| it.name == *name);
            let text = match (found, about.get("Default")) {
                (Some(given), _) => Some(given.value.clone()),
                // Its default is the name of what holds the value.
                (None, _) if kind.starts_with("AWS::SSM::Parameter::Value") => None,
                (None, default) => default.and_then(text),
            };
            values.insert(name.clone(), text.map(|text| of_kind(kind, text)));
        }
    }
    values
}

fn of_kind(kind: &str, text: String) -> Value {
    if kind == "CommaDelimitedList" || kind.starts_with("List<") {
        return text.split(',').map(|item| Value::from(item.trim())).collect();
    }
    Value::String(text)
}

/// A plain value as CloudFormation writes it.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    }
}
