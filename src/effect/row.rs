//! The `row` effect: one row of a table, written together with the completion or not at all:
//! exactly once.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::template::{Template, field};
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::payload::Payload;
use crate::store::{Columns, RowValue, RowWrite};

/// The longest text in a key that every store takes.
const MAX_KEY_TEXT: usize = 1024;

/// One row write per job.
#[derive(Clone, Debug)]
pub(crate) struct RowEffect {
    pub table: String,
    pub key: BTreeMap<String, Cell>,
    pub change: RowChange,
}

/// What becomes of the row.
#[derive(Clone, Debug)]
pub(crate) enum RowChange {
    /// Made, if there is none with this key.
    Put(BTreeMap<String, Cell>),
    /// Added to, unless a column would fall below its floor.
    Add { add: BTreeMap<String, Amount>, floor: BTreeMap<String, i64> },
    /// Deleted, if it is there and shows this.
    Delete(BTreeMap<String, Cell>),
}

/// What a column is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The same for every message.
    Fixed(RowValue),
    /// A field that stands alone keeps its type; among other text it is text.
    Filled(Template),
}

/// What is added to a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    Fixed(i64),
    /// The field's value, whatever its sign.
    Plain(String),
    /// The same, which must not be negative: the jobs file has said that it adds.
    Plus(String),
    /// The field's value taken away; it must not be negative, or it would add.
    Minus(String),
}

/// What a replay answers.
#[derive(Serialize)]
struct Done<'a> {
    table: &'a str,
}

impl RowEffect {
    /// Runs the effect for one call.
    pub async fn run(&self, call: Call) -> Result<Reply, HandlerError> {
        let Call { payload, context } = call;
        let write = self.write(&payload).map_err(HandlerError::terminal)?;
        context.stage_or(write, HandlerError::terminal(self.change.refusal())).await?;
        Ok(Reply::of(&Done { table: &self.table }))
    }

    /// The write for this payload. An error names the field and never its value.
    pub(super) fn write(&self, payload: &Payload) -> Result<RowWrite, String> {
        let table = self.table.clone();
        let key = columns(&self.key, payload)?;
        for (column, value) in &key {
            if matches!(value, RowValue::Text(text) if text.is_empty() || text.len() > MAX_KEY_TEXT)
            {
                return Err(format!(
                    "the key's column {column:?} would be empty or over {MAX_KEY_TEXT} bytes"
                ));
            }
        }
        Ok(match &self.change {
            RowChange::Put(values) => {
                RowWrite::PutIfAbsent { table, key, values: columns(values, payload)? }
            }
            RowChange::Add { add, floor } => {
                let add = add
                    .iter()
                    .map(|(column, amount)| Ok((column.clone(), amount.of(payload)?)))
                    .collect::<Result<_, String>>()?;
                RowWrite::Add { table, key, add, floor: floor.clone() }
            }
            RowChange::Delete(values) => {
                RowWrite::DeleteIf { table, key, values: columns(values, payload)? }
            }
        })
    }
}

impl RowChange {
    /// What it means that the row was left as it is.
    fn refusal(&self) -> String {
        match self {
            Self::Put(_) => "there is a row with this key already".to_owned(),
            Self::Add { floor, .. } if floor.is_empty() => {
                "a sum would be no whole number of 64 bits".to_owned()
            }
            Self::Add { floor, .. } => {
                let floors =
                    floor.iter().map(|(column, least)| format!("{column:?} below {least}"));
                format!("it would bring {}", floors.collect::<Vec<_>>().join(" or "))
            }
            Self::Delete(_) => "there is no row with this key that shows what it must".to_owned(),
        }
    }
}

fn columns(cells: &BTreeMap<String, Cell>, payload: &Payload) -> Result<Columns, String> {
    cells.iter().map(|(column, cell)| Ok((column.clone(), cell.fill(column, payload)?))).collect()
}

impl Cell {
    fn fill(&self, column: &str, payload: &Payload) -> Result<RowValue, String> {
        let template = match self {
            Self::Fixed(value) => return Ok(value.clone()),
            Self::Filled(template) => template,
        };
        let Some(name) = template.field_alone() else {
            let what = format!("column {column:?}");
            return template.fill(payload, &what).map(RowValue::Text);
        };
        let value = match field(payload, name) {
            Some(Value::String(text)) => Some(RowValue::Text(text.clone())),
            Some(Value::Bool(value)) => Some(RowValue::Bool(*value)),
            Some(Value::Number(number)) => number.as_i64().map(RowValue::Integer),
            _ => None,
        };
        value.ok_or_else(|| {
            format!(
                "column {column:?} needs the payload's field {name:?} as text, true, false or a \
                 whole number of 64 bits"
            )
        })
    }
}

impl Amount {
    fn of(&self, payload: &Payload) -> Result<i64, String> {
        let (name, sign) = match self {
            Self::Fixed(amount) => return Ok(*amount),
            Self::Plain(name) => (name, None),
            Self::Plus(name) => (name, Some(1)),
            Self::Minus(name) => (name, Some(-1)),
        };
        match (field(payload, name).and_then(Value::as_i64), sign) {
            (Some(amount), None) => Ok(amount),
            // What is not negative can be negated.
            (Some(amount @ 0..), Some(sign)) => Ok(sign * amount),
            (_, None) => Err(needs(name, "as a whole number of 64 bits")),
            (_, Some(_)) => Err(needs(
                name,
                "as a whole number of 64 bits that is not negative: its sign is in the jobs file",
            )),
        }
    }
}

fn needs(name: &str, what: &str) -> String {
    format!("the amount needs the payload's field {name:?} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(body: &str) -> Payload {
        Payload::json(body).unwrap()
    }

    fn cell(template: &str, body: &str) -> Result<RowValue, String> {
        Cell::Filled(Template::new(template).unwrap()).fill("c", &payload(body))
    }

    #[test]
    fn a_field_alone_keeps_its_type_and_among_text_it_is_text() {
        assert_eq!(cell("{a}", r#"{"a":"5"}"#).unwrap(), RowValue::from("5"));
        assert_eq!(cell("{a}", r#"{"a":-5}"#).unwrap(), RowValue::from(-5));
        assert_eq!(cell("{a}", r#"{"a":true}"#).unwrap(), RowValue::from(true));
        assert_eq!(cell("sku-{a}", r#"{"a":5}"#).unwrap(), RowValue::from("sku-5"));
        for body in [
            "{}",
            r#"{"a":null}"#,
            r#"{"a":4242.5}"#,
            r#"{"a":42.0}"#,
            r#"{"a":9223372036854775808}"#,
            r#"{"a":{"b":4242}}"#,
            "[4242]",
        ] {
            let error = cell("{a}", body).unwrap_err();
            assert!(error.contains("field \"a\"") && !error.contains("42"), "{body}: {error}");
        }
    }

    #[test]
    fn an_amount_is_a_whole_number_whose_sign_cannot_be_turned() {
        let of = |amount: fn(String) -> Amount, body: &str| {
            amount("n".to_owned()).of(&payload(body)).map_err(|error| {
                assert!(error.contains("field \"n\"") && !error.contains("42"), "{error}");
            })
        };
        assert_eq!(of(Amount::Minus, r#"{"n":3}"#), Ok(-3));
        assert_eq!(of(Amount::Minus, r#"{"n":0}"#), Ok(0));
        assert_eq!(of(Amount::Minus, r#"{"n":9223372036854775807}"#), Ok(-i64::MAX));
        assert_eq!(of(Amount::Plus, r#"{"n":3}"#), Ok(3));
        assert_eq!(of(Amount::Plain, r#"{"n":-3}"#), Ok(-3));
        assert_eq!(of(Amount::Plain, r#"{"n":-9223372036854775808}"#), Ok(i64::MIN));
        for amount in [Amount::Minus, Amount::Plus] {
            for body in [r#"{"n":-42}"#, r#"{"n":-9223372036854775808}"#] {
                assert_eq!(of(amount, body), Err(()), "{body}");
            }
        }
        for amount in [Amount::Minus, Amount::Plus, Amount::Plain] {
            for body in [
                "{}",
                r#"{"n":null}"#,
                r#"{"n":"42"}"#,
                r#"{"n":42.5}"#,
                r#"{"n":42.0}"#,
                r#"{"n":1e3}"#,
                r#"{"n":9223372036854775808}"#,
                r#"{"n":true}"#,
                r#"{"n":[42]}"#,
            ] {
                assert_eq!(of(amount, body), Err(()), "{body}");
            }
        }
    }

    #[test]
    fn a_key_that_no_store_could_keep_is_refused() {
        let effect = RowEffect {
            table: "stock".to_owned(),
            key: [("sku".to_owned(), Cell::Filled(Template::new("{sku}").unwrap()))].into(),
            change: RowChange::Put(BTreeMap::new()),
        };
        assert!(effect.write(&payload(r#"{"sku":"cup"}"#)).is_ok());
        let long = format!("{{\"sku\":\"{}\"}}", "x".repeat(1025));
        for body in [r#"{"sku":""}"#, long.as_str()] {
            assert!(effect.write(&payload(body)).unwrap_err().contains("\"sku\""));
        }
    }
}
