//! What the scripts answer.

use ::redis::Value;

use super::hash::{Hash, decode};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Record, RecordId, Timestamp};
use crate::store::{Commit, Cursor, Page, Walk};

/// What became of a commit.
pub(super) fn commit(id: &RecordId, answer: Value) -> Result<Commit, Error> {
    let parts = list(answer).and_then(|parts| {
        let mut parts = parts.into_iter();
        Some((text(parts.next()?)?, parts.next()))
    });
    match parts {
        Some((word, None)) if word == "applied" => Ok(Commit::Applied),
        Some((word, Some(Value::Int(index)))) if word == "refused" => {
            let index = usize::try_from(index).map_err(|_| odd("commit"))?;
            Ok(Commit::Refused { index })
        }
        Some((word, Some(fields))) if word == "conflict" => {
            Ok(Commit::Conflict(record(id, fields)?.map(Box::new)))
        }
        _ => Err(odd("commit").with_id(id)),
    }
}

/// The record of a hash; there is none where there are no fields.
pub(super) fn record(id: &RecordId, fields: Value) -> Result<Option<Record>, Error> {
    let hash = hash(fields).ok_or_else(|| odd("load").with_id(id))?;
    (!hash.is_empty()).then(|| decode(id, &hash)).transpose()
}

/// A part of a scan.
pub(super) fn page(answer: Value) -> Result<Page, Error> {
    let [found, next] = pair(answer, "scan")?;
    let mut page = Page { records: records(found, "scan")?, next: None };
    let next: Vec<_> = list(next).ok_or_else(|| odd("scan"))?;
    page.next = match <[Value; 2]>::try_from(next) {
        Ok([at, pk]) => {
            let at = text(at).and_then(|at| at.parse().ok()).map(Timestamp::from_millis);
            let id = text(pk).as_deref().and_then(RecordId::from_hex);
            Some(at.zip(id).map(|(updated_at, id)| Cursor { updated_at, id }))
        }
        Err(_) => None,
    }
    .map(|cursor| cursor.ok_or_else(|| odd("scan")))
    .transpose()?;
    Ok(page)
}

/// A part of a walk.
pub(super) fn walk(answer: Value) -> Result<Walk, Error> {
    let [found, next] = pair(answer, "walk")?;
    let next = list(next).and_then(|next| next.into_iter().next().map(text)).flatten();
    Ok(Walk { records: records(found, "walk")?, next })
}

fn records(found: Value, operation: &'static str) -> Result<Vec<Record>, Error> {
    let mut records = Vec::new();
    for found in list(found).ok_or_else(|| odd(operation))? {
        let [pk, fields] = pair(found, operation)?;
        let id = text(pk).as_deref().and_then(RecordId::from_hex);
        let id = id.ok_or_else(|| {
            Error::new(ErrorKind::Record, "decode").with_detail("a key holds no record id")
        })?;
        records.extend(record(&id, fields)?);
    }
    Ok(records)
}

fn pair(value: Value, operation: &'static str) -> Result<[Value; 2], Error> {
    let parts = list(value).and_then(|parts| <[Value; 2]>::try_from(parts).ok());
    parts.ok_or_else(|| odd(operation))
}

/// Says nothing of what was sent.
fn odd(operation: &'static str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation)
        .with_detail("an answer that Redis does not give: is it Redis?")
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// Names and values by turns; a map, in the protocol's third version.
fn hash(value: Value) -> Option<Hash> {
    let bytes = |value| match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    };
    let pair = |(name, value)| Some((String::from_utf8(bytes(name)?).ok()?, bytes(value)?));
    match value {
        Value::Map(pairs) => pairs.into_iter().map(pair).collect(),
        value => {
            let mut words = list(value)?.into_iter();
            let mut pairs = Hash::new();
            while let Some(name) = words.next() {
                pairs.extend([pair((name, words.next()?))?]);
            }
            Some(pairs)
        }
    }
}
