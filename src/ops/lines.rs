//! Input of one JSON document per line, and what its lines have in common.

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::error::BoxError;
use crate::protocol::IdempotencyKey;

/// Reads every line of a file, or of standard input, before anything is done with one. The error
/// names file and line.
pub fn read_lines<T>(
    file: Option<&Path>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, BoxError> {
    let name = file.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    let text = match file {
        Some(path) => std::fs::read_to_string(path),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
    };
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| read(line).map_err(|error| format!("{name}:{}: {error}", n + 1).into()))
        .collect()
}

/// What is wrong with a line that is no `T`. It is one line, so its column is place enough.
pub(super) fn fault(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    match error.is_data() {
        true => text.to_owned(),
        false => format!("this is no JSON, see column {column} ({text})"),
    }
}

/// A line's `idempotency-key`.
pub(super) fn key<'de, D: Deserializer<'de>>(input: D) -> Result<IdempotencyKey, D::Error> {
    IdempotencyKey::new(String::deserialize(input)?).map_err(de::Error::custom)
}

/// The same, where a line may leave it out.
pub(super) fn some_key<'de, D>(input: D) -> Result<Option<IdempotencyKey>, D::Error>
where
    D: Deserializer<'de>,
{
    key(input).map(Some)
}

/// A message's body for what a line says: text as it is, anything else as JSON.
pub(super) fn body_text(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
