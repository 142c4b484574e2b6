//! The `row` effect's fields.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Common, Fields, Wrong};
use crate::effect::row::{Amount, Cell, RowChange, RowEffect};
use crate::effect::template::Template;
use crate::handler::Job;
use crate::store::RowValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowTable {
    table: Option<String>,
    #[serde(default)]
    key: BTreeMap<String, CellText>,
    values: Option<BTreeMap<String, CellText>>,
    add: Option<BTreeMap<String, AmountText>>,
    #[serde(default)]
    floor: BTreeMap<String, i64>,
    #[serde(default)]
    delete: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a column's value is text, a whole number, true or false")]
enum CellText {
    Text(String),
    Integer(i64),
    Bool(bool),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "what is added is a whole number or text such as \"-{field}\"")]
enum AmountText {
    Text(String),
    Integer(i64),
}

const GIVES: [(&str, (), &str); 1] =
    [("transactional", (), "the row and the completion are committed together")];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: RowTable = fields.read()?;
    let mut wrong = Wrong::default();
    wrong.keep("guarantee", common.guarantee(&GIVES));
    let name = wrong.keep("table", table.name());
    let key = wrong.keep("key", table.key());
    let change = table.change(&mut wrong);
    let (Some(name), Some(key), Some(change), true) = (name, key, change, wrong.0.is_empty())
    else {
        return Err(wrong);
    };
    let effect = RowEffect { table: name, key, change };
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    let job = job.fused().stages_rows();
    Ok(match common.timeout {
        Some(timeout) => job.timeout(timeout),
        None => job,
    })
}

impl RowTable {
    fn name(&self) -> Result<String, String> {
        match self.table.as_deref() {
            Some("") | None => Err("no table is named; add table = \"...\"".to_owned()),
            Some(name) => Ok(name.to_owned()),
        }
    }

    fn key(&self) -> Result<BTreeMap<String, Cell>, String> {
        if self.key.is_empty() {
            return Err("no row is named; add key = { column = \"{field}\" }".to_owned());
        }
        cells(&self.key)
    }

    fn change(&self, wrong: &mut Wrong) -> Option<RowChange> {
        if self.add.is_none() && !self.floor.is_empty() {
            wrong.say("floor", "a floor is for what is added; add add = { column = .. }");
        }
        match (&self.values, &self.add, self.delete) {
            (values, None, true) => {
                let values = values.as_ref().map(|values| self.cells(values)).transpose();
                wrong.keep("values", values).map(|it| RowChange::Delete(it.unwrap_or_default()))
            }
            (Some(values), None, false) => {
                wrong.keep("values", self.cells(values)).map(RowChange::Put)
            }
            (None, Some(add), false) => {
                let floor = wrong.keep("floor", self.floor(add));
                let add = wrong.keep("add", self.amounts(add))?;
                Some(RowChange::Add { add, floor: floor? })
            }
            (None, None, false) => {
                let text = "it is not said what becomes of the row; add values = {..} to make it, \
                            add = {..} to add to it, or delete = true";
                wrong.say("table", text);
                None
            }
            (_, Some(_), _) => {
                let text = "a row is made (values), added to (add) or deleted (delete): leave one \
                            of them";
                wrong.say("add", text);
                None
            }
        }
    }

    /// Columns beside the key's.
    fn cells(&self, values: &BTreeMap<String, CellText>) -> Result<BTreeMap<String, Cell>, String> {
        self.beside_the_key(values.keys())?;
        cells(values)
    }

    fn amounts(
        &self,
        add: &BTreeMap<String, AmountText>,
    ) -> Result<BTreeMap<String, Amount>, String> {
        if add.is_empty() {
            return Err("nothing is added; write add = { column = \"-{field}\" }".to_owned());
        }
        self.beside_the_key(add.keys())?;
        add.iter().map(|(column, amount)| Ok((column.clone(), amount.read(column)?))).collect()
    }

    fn floor(&self, add: &BTreeMap<String, AmountText>) -> Result<BTreeMap<String, i64>, String> {
        match self.floor.keys().find(|column| !add.contains_key(*column)) {
            // Misspelt, it would guard nothing.
            Some(column) => Err(format!("column {column:?} has a floor and is not added to")),
            None => Ok(self.floor.clone()),
        }
    }

    fn beside_the_key<'a>(
        &self,
        mut columns: impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        match columns.find(|column| self.key.contains_key(*column)) {
            Some(column) => Err(format!("column {column:?} is in the key; name it there alone")),
            None => Ok(()),
        }
    }
}

fn cells(texts: &BTreeMap<String, CellText>) -> Result<BTreeMap<String, Cell>, String> {
    texts.iter().map(|(column, text)| Ok((column.clone(), text.read(column)?))).collect()
}

impl CellText {
    fn read(&self, column: &str) -> Result<Cell, String> {
        Ok(match self {
            Self::Integer(number) => Cell::Fixed(RowValue::Integer(*number)),
            Self::Bool(value) => Cell::Fixed(RowValue::Bool(*value)),
            Self::Text(text) => Cell::Filled(template(column, text)?),
        })
    }
}

impl AmountText {
    fn read(&self, column: &str) -> Result<Amount, String> {
        let text = match self {
            Self::Integer(number) => return Ok(Amount::Fixed(*number)),
            Self::Text(text) => text.as_str(),
        };
        let (amount, field): (fn(String) -> Amount, &str) = match text.split_at_checked(1) {
            Some(("-", field)) => (Amount::Minus, field),
            Some(("+", field)) => (Amount::Plus, field),
            _ => (Amount::Plain, text),
        };
        match template(column, field)?.field_alone() {
            Some(field) => Ok(amount(field.to_owned())),
            None => Err(format!(
                "column {column:?}: {text:?} is no amount; write a whole number, \"-{{field}}\", \
                 \"+{{field}}\" or \"{{field}}\""
            )),
        }
    }
}

fn template(column: &str, text: &str) -> Result<Template, String> {
    Template::new(text).map_err(|why| format!("column {column:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use crate::config::jobs_file::faults;

    const RESERVE: &str = r#"
[job."order.reserve"]
effect = "row"
guarantee = "transactional"
table = "stock"
key = { sku = "{sku}" }
add = { available = "-{quantity}" }
floor = { available = 0 }
timeout = "5s"
"#;

    #[test]
    fn every_kind_of_write_is_read() {
        for (from, to) in [
            ("", ""),
            ("\"-{quantity}\"", "-1"),
            ("\"-{quantity}\"", "\"+{quantity}\""),
            ("add = { available = \"-{quantity}\" }\nfloor = { available = 0 }", "delete = true"),
            (
                "add = { available = \"-{quantity}\" }\nfloor = { available = 0 }",
                "values = { state = \"new\", by = \"user {id}\", n = 1, ok = true }",
            ),
            (
                "add = { available = \"-{quantity}\" }\nfloor = { available = 0 }",
                "values = { state = \"new\" }\ndelete = true",
            ),
        ] {
            assert_eq!(faults(&RESERVE.replacen(from, to, 1)), "", "{to}");
        }
    }

    #[test]
    fn each_fault_names_its_line_and_the_fix() {
        let cases = [
            (
                "\"transactional\"",
                "\"at-least-once\"",
                "4: job \"order.reserve\": the row effect cannot give guarantee \"at-least-once\"; it gives \"transactional\"",
            ),
            ("\"transactional\"", "\"keyed\"", "cannot give guarantee \"keyed\""),
            ("guarantee = \"transactional\"\n", "", "no guarantee is named"),
            ("table = \"stock\"\n", "", "no table is named"),
            ("key = { sku = \"{sku}\" }\n", "", "no row is named"),
            ("{sku}", "{sku", "6: job \"order.reserve\": column \"sku\": a { without its }"),
            (
                "\"-{quantity}\"",
                "\"-quantity\"",
                "7: job \"order.reserve\": column \"available\": \"-quantity\" is no amount",
            ),
            ("\"-{quantity}\"", "\"-{a}{b}\"", "is no amount"),
            ("\"-{quantity}\"", "0.5", "what is added is a whole number"),
            ("{ available = \"-{quantity}\" }", "{}", "nothing is added"),
            (
                "{ available = 0 }",
                "{ avialable = 0 }",
                "8: job \"order.reserve\": column \"avialable\" has a floor and is not added to",
            ),
            (
                "{ available = 0 }",
                "{ available = \"0\" }",
                "8: job \"order.reserve\": invalid type",
            ),
            ("add = { available = \"-{quantity}\" }\n", "", "a floor is for what is added"),
            (
                "add = { available = \"-{quantity}\" }\nfloor = { available = 0 }\n",
                "",
                "add values = {..} to make it",
            ),
            ("floor = {", "delete = true\nfloor = {", "leave one of them"),
            ("add = { available", "add = { sku", "column \"sku\" is in the key"),
            (
                "table = ",
                "url = \"https://x/\"\ntable = ",
                "5: job \"order.reserve\": unknown field `url`",
            ),
        ];
        for (right, wrong, said) in cases {
            assert!(RESERVE.contains(right), "{right}");
            let faults = faults(&RESERVE.replacen(right, wrong, 1));
            assert!(faults.starts_with("jobs.toml:") && faults.contains(said), "{wrong}: {faults}");
        }
    }
}
