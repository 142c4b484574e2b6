//! What a template's expressions come to, as far as that is known before it is deployed.
//!
//! A resource is `${Name}`, its attribute `${Name.Attribute}`, a pseudo parameter `${AWS::Region}`.
//! What is only known elsewhere is `${?why}`: nothing is guessed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::parameters::{Parameter, text, values};
use crate::ops::doctor::known::Untold;

/// How deep expressions are followed.
pub(super) const DEEPEST: usize = 64;

pub(super) const NO_VALUE: &str = "${AWS::NoValue}";

pub(super) struct Scope<'t> {
    pub(super) template: &'t Value,
    parameters: BTreeMap<String, Option<Value>>,
    /// Those that were decided, or are being: one that needs itself is left open.
    pub(super) conditions: RefCell<BTreeMap<String, Option<bool>>>,
}

/// A value that is only known elsewhere.
fn open(why: impl std::fmt::Display) -> Value {
    Value::String(format!("${{?{why}}}"))
}

/// Why a text is open, if it is.
pub(super) fn why_open(text: &str) -> Option<Untold> {
    if text.contains("{{resolve:") {
        return Some(Untold("it is read from a parameter store when it is deployed".to_owned()));
    }
    let why = text.split_once("${?")?.1;
    let why = why.split_once('}').map_or(why, |(why, _)| why);
    Some(Untold(why.to_owned()))
}

impl<'t> Scope<'t> {
    pub fn new(template: &'t Value, given: &[Parameter]) -> Result<Self, String> {
        if !template.get("Resources").is_some_and(Value::is_object) {
            return Err("there are no Resources: it is no template".to_owned());
        }
        let conditions = RefCell::default();
        Ok(Self { template, parameters: values(template, given), conditions })
    }

    pub fn template(&self) -> &'t Value {
        self.template
    }

    /// The resources that are made, or may be: name, type, and properties.
    pub fn resources(&self) -> impl Iterator<Item = (&'t str, &'t str, &'t Value)> {
        let all = self.template.get("Resources").and_then(Value::as_object);
        all.into_iter().flatten().filter_map(|(name, resource)| {
            let condition = resource.get("Condition").and_then(Value::as_str);
            if condition.is_some_and(|name| self.condition(name, 0) == Some(false)) {
                return None;
            }
            let kind = resource.get("Type")?.as_str()?;
            Some((name.as_str(), kind, resource.get("Properties").unwrap_or(&Value::Null)))
        })
    }

    /// The resource that a value leads to: its name, type and properties.
    pub fn resource_of(&self, value: &str) -> Option<(&'t str, &'t str, &'t Value)> {
        let inner = value.strip_prefix("${")?.strip_suffix('}')?;
        let name = inner.split('.').next()?;
        self.resources().find(|(found, ..)| *found == name)
    }

    /// What an expression comes to.
    pub fn resolve(&self, value: &Value) -> Value {
        self.at(value, 0)
    }

    pub(super) fn at(&self, value: &Value, depth: usize) -> Value {
        if depth > DEEPEST {
            return open("it is nested too deep");
        }
        let deeper = |value| self.at(value, depth + 1);
        match value {
            Value::Array(items) => {
                items.iter().map(deeper).filter(|item| item != NO_VALUE).collect()
            }
            Value::Object(fields) => match single(fields) {
                Some((name, argument)) if name == "Ref" || name.starts_with("Fn::") => {
                    self.function(name, argument, depth + 1)
                }
                _ => Value::Object(
                    fields
                        .iter()
                        .map(|(name, value)| (name.clone(), deeper(value)))
                        .filter(|(_, value)| value != NO_VALUE)
                        .collect(),
                ),
            },
            plain => plain.clone(),
        }
    }

    fn function(&self, name: &str, argument: &Value, depth: usize) -> Value {
        let argument_of = |at: usize| argument.get(at).map(|value| self.at(value, depth));
        let found = match name {
            "Ref" => argument.as_str().map(|name| self.named(name)),
            "Fn::GetAtt" => self.attribute(argument),
            "Fn::Sub" => self.substituted(argument, depth),
            "Fn::If" => {
                let condition = argument.get(0).and_then(Value::as_str).unwrap_or_default();
                match self.condition(condition, depth) {
                    Some(true) => argument_of(1),
                    Some(false) => argument_of(2),
                    None => Some(open(format_args!("condition {condition} is not decided here"))),
                }
            }
            "Fn::FindInMap" => self.found_in_map(argument, depth),
            "Fn::Join" => match (argument_of(0).as_ref().and_then(Value::as_str), argument_of(1)) {
                (Some(between), Some(Value::Array(items))) => {
                    let texts: Option<Vec<_>> = items.iter().map(text).collect();
                    texts.map(|texts| Value::String(texts.join(between)))
                }
                (_, other) => other.filter(is_open),
            },
            "Fn::Split" => {
                match (argument_of(0).as_ref().and_then(Value::as_str), argument_of(1)) {
                    (_, Some(whole)) if is_open(&whole) => Some(whole),
                    (Some(between), Some(Value::String(whole))) if !between.is_empty() => {
                        Some(whole.split(between).map(Value::from).collect())
                    }
                    _ => None,
                }
            }
            "Fn::Select" => match (argument_of(0).as_ref().and_then(number), argument_of(1)) {
                (Some(at), Some(Value::Array(items))) => {
                    usize::try_from(at).ok().and_then(|at| items.get(at).cloned())
                }
                (_, other) => other.filter(is_open),
            },
            _ => None,
        };
        found
            .unwrap_or_else(|| open(format_args!("what {name} gives is known once it is deployed")))
    }

    fn named(&self, name: &str) -> Value {
        match self.parameters.get(name) {
            Some(Some(value)) => value.clone(),
            Some(None) => {
                open(format_args!("parameter {name} has no value: give --parameter {name}=VALUE"))
            }
            None => Value::String(format!("${{{name}}}")),
        }
    }

    fn attribute(&self, argument: &Value) -> Option<Value> {
        match argument {
            Value::String(whole) => Some(Value::String(format!("${{{whole}}}"))),
            Value::Array(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(Value::as_str).collect();
                parts.map(|parts| Value::String(format!("${{{}}}", parts.join("."))))
            }
            _ => None,
        }
    }

    fn substituted(&self, argument: &Value, depth: usize) -> Option<Value> {
        let nothing = Map::new();
        let (pattern, local) = match argument {
            Value::String(pattern) => (pattern.as_str(), &nothing),
            _ => (argument.get(0)?.as_str()?, argument.get(1)?.as_object()?),
        };
        let mut made = String::new();
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once("${") {
            made.push_str(before);
            let (name, after) = after.split_once('}')?;
            rest = after;
            let value = match (name.strip_prefix('!'), local.get(name)) {
                (Some(_), _) => open("it has a literal `${`"),
                (None, Some(value)) => self.at(value, depth),
                (None, None) => self.named(name),
            };
            made.push_str(&text(&value)?);
        }
        made.push_str(rest);
        Some(Value::String(made))
    }

    fn found_in_map(&self, argument: &Value, depth: usize) -> Option<Value> {
        let mut found = self.template.get("Mappings")?;
        for at in 0..3 {
            let key = self.at(argument.get(at)?, depth);
            if is_open(&key) {
                return Some(key);
            }
            found = found.get(text(&key)?)?;
        }
        Some(found.clone())
    }
}

pub(super) fn single(fields: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut fields = fields.iter();
    let (name, value) = fields.next()?;
    fields.next().is_none().then_some((name.as_str(), value))
}

fn is_open(value: &Value) -> bool {
    value.as_str().is_some_and(|text| why_open(text).is_some())
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}
