//! Staged writes as items of a transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};

use super::item::Attributes;
use crate::error::{Error, ErrorKind};
use crate::store::{RowValue, RowWrite, StagedWrite};

pub(super) const NATIVE: &str = "TransactWriteItem";

impl From<TransactWriteItem> for StagedWrite {
    fn from(item: TransactWriteItem) -> Self {
        Self::Native { form: NATIVE, value: Box::new(item) }
    }
}

/// For a transaction of your own.
impl TryFrom<&RowWrite> for TransactWriteItem {
    type Error = Error;

    fn try_from(row: &RowWrite) -> Result<Self, Error> {
        row_item(row)
    }
}

/// The staged write as an item of a transaction.
pub(super) fn item(staged: &StagedWrite) -> Result<TransactWriteItem, Error> {
    match staged {
        StagedWrite::Row(row) => row_item(row),
        StagedWrite::Native { form, value } => {
            value.downcast_ref::<TransactWriteItem>().cloned().ok_or_else(|| {
                Error::new(ErrorKind::Staged, "stage")
                    .with_detail(format!("DynamoDB takes RowWrite or {NATIVE}, not {form}"))
            })
        }
    }
}

fn row_item(row: &RowWrite) -> Result<TransactWriteItem, Error> {
    row.check()?;
    let item = TransactWriteItem::builder();
    let built = match row {
        RowWrite::PutIfAbsent { table, key, values } => {
            let first = key.keys().next().cloned().unwrap_or_default();
            Put::builder()
                .table_name(table)
                .set_item(Some(encode(key.iter().chain(values))))
                .condition_expression("attribute_not_exists(#key)")
                .expression_attribute_names("#key", first)
                .build()
                .map(|put| item.put(put).build())
        }
        RowWrite::Add { table, key, add, floor } => {
            let mut placed = Placeholders::default();
            let sums: Vec<_> = add
                .iter()
                .map(|(column, by)| {
                    let name = placed.name(column);
                    format!("{name} {}", placed.value(number(*by)))
                })
                .collect();
            let floors: Vec<_> = floor
                .iter()
                .map(|(column, least)| {
                    // The condition sees the row as it was: old + by >= least.
                    let by = add.get(column).copied().unwrap_or(0);
                    let least = least.saturating_sub(by);
                    let name = placed.name(column);
                    let value = placed.value(number(least));
                    // A column that is not there counts as 0.
                    if least <= 0 {
                        format!("(attribute_not_exists({name}) OR {name} >= {value})")
                    } else {
                        format!("{name} >= {value}")
                    }
                })
                .collect();
            Update::builder()
                .table_name(table)
                .set_key(Some(encode(key)))
                .update_expression(format!("ADD {}", sums.join(", ")))
                .set_condition_expression((!floors.is_empty()).then(|| floors.join(" AND ")))
                .set_expression_attribute_names(Some(placed.names))
                .set_expression_attribute_values(Some(placed.values))
                .build()
                .map(|update| item.update(update).build())
        }
        RowWrite::DeleteIf { table, key, values } => {
            let mut placed = Placeholders::default();
            let first = key.keys().next().cloned().unwrap_or_default();
            let mut conditions = vec![format!("attribute_exists({})", placed.name(&first))];
            for (column, value) in values {
                let name = placed.name(column);
                conditions.push(format!("{name} = {}", placed.value(encode_value(value))));
            }
            let values = (!placed.values.is_empty()).then_some(placed.values);
            Delete::builder()
                .table_name(table)
                .set_key(Some(encode(key)))
                .condition_expression(conditions.join(" AND "))
                .set_expression_attribute_names(Some(placed.names))
                .set_expression_attribute_values(values)
                .build()
                .map(|delete| item.delete(delete).build())
        }
    };
    built.map_err(|error| Error::new(ErrorKind::Staged, "stage").with_source(error))
}

/// Attribute names and values behind placeholders: names may be reserved words.
#[derive(Default)]
struct Placeholders {
    names: HashMap<String, String>,
    values: Attributes,
}

impl Placeholders {
    fn name(&mut self, column: &str) -> String {
        let known = self.names.iter().find(|(_, name)| *name == column).map(|(p, _)| p.clone());
        known.unwrap_or_else(|| {
            let placeholder = format!("#n{}", self.names.len());
            self.names.insert(placeholder.clone(), column.to_owned());
            placeholder
        })
    }

    fn value(&mut self, value: AttributeValue) -> String {
        let placeholder = format!(":v{}", self.values.len());
        self.values.insert(placeholder.clone(), value);
        placeholder
    }
}

fn number(n: i64) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

fn encode_value(value: &RowValue) -> AttributeValue {
    match value {
        RowValue::Text(text) => AttributeValue::S(text.clone()),
        RowValue::Integer(n) => number(*n),
        RowValue::Bool(value) => AttributeValue::Bool(*value),
    }
}

pub(super) fn encode<'a>(
    columns: impl IntoIterator<Item = (&'a String, &'a RowValue)>,
) -> Attributes {
    columns.into_iter().map(|(name, value)| (name.clone(), encode_value(value))).collect()
}
