//! The write of a record as one statement, which changes one row or none.

use super::columns::{Named, columns, encode};
use super::draft::{Draft, Drafted};
use crate::error::Error;
use crate::protocol::{Change, ConditionalWrite, Expect, SCHEMA_VERSION};

/// The statement, of which `$1` is the record's id; `None` if its condition cannot hold.
pub(in crate::store) fn record_sql(write: &ConditionalWrite) -> Result<Option<Drafted>, Error> {
    Ok(match (&write.expect, &write.change) {
        (Expect::Absent, Change::Create(record)) => Some(insert(encode(record)?)),
        // There is nothing to update where there is no record.
        (Expect::Absent, Change::Update(_)) => None,
        (Expect::At { .. }, Change::Create(record)) => Some(update(encode(record)?, write)),
        (Expect::At { .. }, Change::Update(fields)) => {
            let named: Result<Vec<Named>, Error> = fields.iter().map(columns).collect();
            Some(update(named?.concat(), write))
        }
    })
}

fn insert(named: Named) -> Drafted {
    let mut draft = Draft::default();
    let (names, places): (Vec<_>, Vec<_>) =
        named.into_iter().map(|(name, value)| (name, draft.value(value))).unzip();
    let (names, places) = (names.join(", "), places.join(", "));
    draft.done(format!(
        "INSERT INTO onlyonce ({names}) VALUES ({places}) ON CONFLICT (pk) DO NOTHING"
    ))
}

/// Sets what is named and leaves the rest, columns of a later version included. A record of a
/// later layout is left alone even by its own claim: reading it then says why.
fn update(named: Named, write: &ConditionalWrite) -> Drafted {
    let mut draft = Draft::default();
    let mut conditions =
        format!("pk = {} AND v <= {SCHEMA_VERSION}", draft.value(write.id.as_str()));
    if let Expect::At { claim_id, rev } = &write.expect {
        let claim_id = draft.value(claim_id.as_str());
        // Past the largest integer: a revision that no record here can have.
        let rev = draft.value(i64::try_from(rev.0).ok());
        conditions.push_str(&format!(" AND claim_id = {claim_id} AND rev = {rev}"));
    }
    let sets: Vec<_> =
        named.into_iter().map(|(name, value)| format!("{name} = {}", draft.value(value))).collect();
    draft.done(format!("UPDATE onlyonce SET {} WHERE {conditions}", sets.join(", ")))
}
