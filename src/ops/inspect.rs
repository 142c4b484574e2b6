//! `inspect`: one record, and what happened when.

use std::process::ExitCode;

use comfy_table::Table;
use serde_json::Value;

use super::{RecordView, instant};
use crate::error::BoxError;
use crate::protocol::{RecordId, Timestamp};
use crate::store::Store;

/// Shows one record, by a consistent read: its fields, then its story.
pub async fn inspect(
    store: &dyn Store,
    id: &RecordId,
    is_json: bool,
) -> Result<ExitCode, BoxError> {
    let record = store.load(id).await?.map(RecordView::from).ok_or_else(|| {
        format!("there is no record {id} in this store; job, key and ONLYONCE_NAMESPACE name it")
    })?;
    if is_json {
        println!("{}", serde_json::to_string(&record)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    if let Value::Object(fields) = serde_json::to_value(&record)? {
        for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
            let text = match (name.as_str(), value.as_str()) {
                (_, Some(text)) => text.to_owned(),
                ("created_at" | "updated_at" | "lease_until" | "not_before", None) => {
                    time(&value, 1)
                }
                ("expires_at", None) => time(&value, 1000),
                _ => value.to_string(),
            };
            table.add_row([name, text]);
        }
    }
    println!("{table}");
    for moment in record.timeline() {
        println!("{}  {}", instant(moment.at), moment.what);
    }
    Ok(ExitCode::SUCCESS)
}

/// An instant of so many milliseconds a unit, as people read it.
fn time(value: &Value, unit: u64) -> String {
    let at = value.as_u64().map(|n| Timestamp::from_millis(n.saturating_mul(unit)));
    at.map_or_else(|| value.to_string(), instant)
}
