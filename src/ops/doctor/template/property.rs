//! A resource's properties, as they are read.

use serde_json::Value;

use super::parameters::text;
use super::resolve::{NO_VALUE, Scope, why_open};
use crate::ops::doctor::known::Known;

impl Scope<'_> {
    /// A property as a text; absent where it is not set.
    pub fn text(&self, value: Option<&Value>) -> Known<String> {
        let Some(value) = value else { return Known::Absent };
        let resolved = self.resolve(value);
        if resolved.is_null() || resolved == NO_VALUE {
            return Known::Absent;
        }
        match text(&resolved) {
            Some(text) => why_open(&text).map_or(Known::Is(text), Known::Untold),
            None => Known::untold("it is no plain value in this template"),
        }
    }

    /// A property as a number.
    pub fn number(&self, value: Option<&Value>) -> Known<u64> {
        match self.text(value) {
            Known::Is(text) => match text.trim().parse() {
                Ok(number) => Known::Is(number),
                Err(_) => Known::untold("it is no number in this template"),
            },
            Known::Absent => Known::Absent,
            Known::Untold(why) => Known::Untold(why),
        }
    }

    /// A property as yes or no.
    pub fn flag(&self, value: Option<&Value>) -> Known<bool> {
        self.text(value).map(|text| text.eq_ignore_ascii_case("true"))
    }

    /// A property as a list or an object.
    pub fn structure(&self, value: Option<&Value>) -> Known<Value> {
        let Some(value) = value else { return Known::Absent };
        match self.resolve(value) {
            Value::Null => Known::Absent,
            Value::String(text) if text == NO_VALUE => Known::Absent,
            Value::String(text) => {
                why_open(&text).map_or(Known::Is(Value::String(text)), Known::Untold)
            }
            value => Known::Is(value),
        }
    }
}
