//! A message's payload, its one canonical form, and its fingerprint.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::protocol::Fingerprint;

/// What a job was given. `Debug` shows its size only.
#[derive(Clone, PartialEq)]
pub struct Payload {
    text: String,
    json: Option<Value>,
}

/// Why a body is not JSON: where, never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not JSON ({what} at line {line}, column {column})")]
pub struct NotJson {
    what: &'static str,
    line: usize,
    column: usize,
}

impl NotJson {
    /// Serde's own text would quote the payload.
    fn of(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Io => "unreadable",
            serde_json::error::Category::Syntax => "bad syntax, or nested over 127 deep",
            serde_json::error::Category::Data => "unexpected data",
            serde_json::error::Category::Eof => "it ends too early",
        };
        Self { what, line: error.line(), column: error.column() }
    }
}

impl Payload {
    /// A JSON body. Nesting over 127 deep is refused.
    pub fn json(body: impl Into<String>) -> Result<Self, NotJson> {
        let text = body.into();
        let json = serde_json::from_str(&text).map_err(|error| NotJson::of(&error))?;
        Ok(Self { text, json: Some(json) })
    }

    /// A body taken as it is.
    pub fn raw(body: impl Into<String>) -> Self {
        Self { text: body.into(), json: None }
    }

    /// The body as it came.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The body as JSON; `None` for a raw one.
    pub fn value(&self) -> Option<&Value> {
        self.json.as_ref()
    }

    /// Reads the payload as a `P`. A raw body reads as a string.
    ///
    /// The error says where it does not fit and never quotes the payload.
    pub fn read<P: DeserializeOwned>(&self) -> Result<P, NotJson> {
        let read = match &self.json {
            Some(_) => serde_json::from_str(&self.text),
            None => serde_json::from_value(Value::String(self.text.clone())),
        };
        read.map_err(|error| NotJson::of(&error))
    }

    /// One form for every way of writing the same payload: object keys sorted by bytes, no white
    /// space, numbers as serde_json writes them, the last of duplicate keys. A raw body is its own.
    pub fn canonical(&self) -> Cow<'_, str> {
        match &self.json {
            Some(value) => {
                let mut out = String::with_capacity(self.text.len());
                write_canonical(value, &mut out);
                Cow::Owned(out)
            }
            None => Cow::Borrowed(&self.text),
        }
    }

    /// SHA-256 of the canonical form.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.canonical().as_bytes())
    }

    /// SHA-256 of the canonical form of an object with these of its fields alone; of the whole
    /// where the payload is no object, for then it has none to choose from.
    pub fn fingerprint_of(&self, fields: &[String]) -> Fingerprint {
        let Some(Value::Object(all)) = &self.json else {
            return self.fingerprint();
        };
        let chosen = fields.iter().filter_map(|name| all.get_key_value(name));
        let chosen = chosen.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut out = String::new();
        write_canonical(&Value::Object(chosen), &mut out);
        Fingerprint::of(out.as_bytes())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.text.len())
    }
}

/// Recursion is bounded by the parser's limit on nesting.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // Sorted here: another crate may have turned on serde_json's `preserve_order`.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| name.as_bytes());
            out.push('{');
            for (n, (name, field)) in fields.into_iter().enumerate() {
                if n > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write_canonical(field, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fingerprint(body: &str) -> String {
        Payload::json(body).unwrap().fingerprint().to_string()
    }

    #[test]
    fn fingerprint_matches_the_published_vector() {
        assert_eq!(
            fingerprint(r#"{"lines":[{"sku":"x","n":1.0}],"currency":"eur","amount":5}"#),
            "3a23e5c1f08997e745043f53ecb4adb9718bfb4714ddb1ea3e83556a376f55b9"
        );
    }

    #[test]
    fn writing_the_same_payload_otherwise_changes_nothing() {
        let first = fingerprint(r#"{"a":1,"b":{"c":[1,2],"d":"é"}}"#);
        let again = fingerprint(" { \"b\" : {\"d\":\"\\u00e9\",\"c\":[1, 2]}, \"a\":0, \"a\":1 }");
        assert_eq!(first, again);
    }

    #[test]
    fn a_number_is_written_as_it_was_read() {
        for number in ["93238795304377.97", "19.990000000000002", "0.1234567890123456", "1e-7"] {
            assert_eq!(Payload::json(number).unwrap().canonical(), number);
        }
    }

    #[test]
    fn what_differs_differs() {
        assert_ne!(fingerprint("1"), fingerprint("1.0"));
        assert_ne!(fingerprint("[1,2]"), fingerprint("[2,1]"));
        assert_ne!(fingerprint(r#"{"a":null}"#), fingerprint("{}"));
        assert_ne!(fingerprint("\"\u{e9}\""), fingerprint("\"e\u{301}\""));
    }

    #[test]
    fn a_fingerprint_of_fields_sees_those_alone() {
        let of = |body: &str| {
            let fields = ["amount", "currency"].map(str::to_owned);
            Payload::json(body).unwrap().fingerprint_of(&fields).to_string()
        };
        let first = of(r#"{"amount":5,"currency":"eur","sent_at":1}"#);
        assert_eq!(first, of(r#"{"sent_at":2,"currency":"eur","amount":5}"#));
        assert_eq!(first, fingerprint(r#"{"amount":5,"currency":"eur"}"#));
        assert_ne!(first, of(r#"{"amount":6,"currency":"eur"}"#));
        assert_ne!(of(r#"{"amount":5}"#), of(r#"{"amount":5,"currency":null}"#));
        // What has no fields is not all the same.
        assert_ne!(of("[1]"), of("[2]"));
    }

    #[test]
    fn deep_nesting_and_bad_json_are_errors_that_quote_nothing() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        assert!(Payload::json(deep).is_err());
        let error = Payload::json("{\"card\": 4242x}").unwrap_err().to_string();
        assert!(!error.contains("4242"), "{error}");
        let misfit = Payload::json("\"4242\"").unwrap().read::<u32>().unwrap_err().to_string();
        assert!(!misfit.contains("4242"), "{misfit}");
    }

    /// A JSON value together with two ways of writing its objects.
    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-zé\"\\\\ ]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-zé]{0,4}", inner, 0..5).prop_map(Value::from_iter),
            ]
        })
    }

    fn written(value: &Value, is_reversed: bool) -> String {
        match value {
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| written(item, is_reversed)).collect();
                format!("[ {} ]", items.join(" , "))
            }
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields
                    .iter()
                    .map(|(k, v)| {
                        format!("{} : {}", Value::from(k.as_str()), written(v, is_reversed))
                    })
                    .collect();
                if is_reversed {
                    fields.reverse();
                }
                format!("{{ {} }}", fields.join(" , "))
            }
            scalar => scalar.to_string(),
        }
    }

    proptest! {
        #[test]
        fn the_same_payload_gives_the_same_fingerprint_whatever_its_key_order(value in json()) {
            prop_assert_eq!(fingerprint(&written(&value, false)), fingerprint(&written(&value, true)));
        }
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::*;
    use crate::fuzz::fuzz;

    #[cfg_attr(test, test)]
    pub(crate) fn one_form_is_its_own_and_of_one_payload_there_is_one() {
        fuzz("payload", |body| {
            assert_eq!(Payload::raw(body).canonical(), body);
            let Ok(payload) = Payload::json(body) else {
                return;
            };
            let canonical = payload.canonical().into_owned();
            let again = Payload::json(canonical.as_str()).unwrap();
            assert_eq!(again.canonical(), canonical);
            assert_eq!(again.value(), payload.value());
            assert_eq!(again.fingerprint(), payload.fingerprint());
            let some = ["a".to_owned(), "lines".to_owned()];
            assert_eq!(again.fingerprint_of(&some), payload.fingerprint_of(&some));
            let spread = serde_json::to_string_pretty(payload.value().unwrap()).unwrap();
            assert_eq!(Payload::json(spread).unwrap().canonical(), canonical);
        });
    }
}
