//! A record as columns. Each is named once here, once in `decode` and once in the table.

use super::statement::SqlValue;
use crate::error::{Error, ErrorKind};
use crate::protocol::{
    EpochSeconds, Field, Fingerprint, Output, Record, SCHEMA_VERSION, Timestamp,
};
use crate::store::effects::encode_effects;

pub(super) type Named = Vec<(&'static str, SqlValue)>;

/// The integers of SQL have 63 bits and a sign. A number past that is refused rather than stored as
/// another: a write must be read back as it was sent.
fn number(name: &'static str, number: u64) -> Result<SqlValue, Error> {
    i64::try_from(number).map(SqlValue::Integer).map_err(|_| {
        Error::new(ErrorKind::StoreRefused, "encode")
            .with_detail(format!("{name} {number} is past the largest integer of the database"))
    })
}

/// The columns one field is stored in.
pub(super) fn columns(field: &Field) -> Result<Named, Error> {
    let numbered = |name, n: u64| Ok(vec![(name, number(name, n)?)]);
    let maybe = |name, n: Option<u64>| {
        let value = n.map(|n| number(name, n)).transpose()?;
        Ok(vec![(name, value.unwrap_or(SqlValue::Null))])
    };
    let text = |name, text: Option<&str>| Ok(vec![(name, text.into())]);
    match field {
        // `parked` is there exactly while the status is one: the index stays sparse.
        Field::Status(status) => Ok(vec![
            ("status", status.as_str().into()),
            ("parked", status.is_parked().then(|| status.as_str()).into()),
        ]),
        Field::ClaimId(id) => text("claim_id", Some(id.as_str())),
        Field::Token(token) => numbered("token", token.0),
        Field::Rev(rev) => numbered("rev", rev.0),
        Field::Attempt(attempt) => numbered("attempt", (*attempt).into()),
        Field::LeaseUntil(at) => numbered("lease_until", at.millis()),
        Field::NotBefore(at) => maybe("not_before", at.map(Timestamp::millis)),
        Field::Fingerprint(print) => text("fingerprint", print.as_ref().map(Fingerprint::as_str)),
        Field::UnrecordedSince(at) => maybe("unrecorded_since", at.map(Timestamp::millis)),
        Field::Effects(effects) => text("effects", Some(&encode_effects(effects))),
        Field::Output(output) => {
            let stored = match output {
                Some(Output::Stored(json)) => Some(json.as_str()),
                _ => None,
            };
            let omitted = matches!(output, Some(Output::Omitted));
            Ok(vec![("output", stored.into()), ("output_omitted", omitted.then_some(true).into())])
        }
        Field::Error(error) => text("error", error.as_deref()),
        Field::Quarantine(state) => text("quarantine", state.map(|state| state.as_str())),
        Field::CreatedAt(at) => numbered("created_at", at.millis()),
        Field::UpdatedAt(at) => numbered("updated_at", at.millis()),
        Field::MessageId(id) => text("message_id", id.as_deref()),
        Field::ExpiresAt(at) => maybe("expires_at", at.map(EpochSeconds::secs)),
    }
}

/// All columns of a new record.
pub(super) fn encode(record: &Record) -> Result<Named, Error> {
    let mut all = vec![
        ("pk", record.id.as_str().into()),
        ("key", record.key.as_str().into()),
        ("job", record.job.as_str().into()),
        ("namespace", record.namespace.as_str().into()),
        ("v", SqlValue::Integer(SCHEMA_VERSION.into())),
    ];
    for field in &Field::all_of(record) {
        all.extend(columns(field)?);
    }
    Ok(all)
}
