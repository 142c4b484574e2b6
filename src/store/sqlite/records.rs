//! Reading and writing records, inside a transaction or beside one.

use rusqlite::{Connection, params, params_from_iter};

use super::columns::{Named, columns, encode};
use super::decode::decode;
use super::fault::fault;
use super::statement::SqlValue;
use crate::error::Error;
use crate::protocol::{Change, ConditionalWrite, Expect, Record, RecordId, SCHEMA_VERSION, Status};
use crate::store::{Cursor, Page};

/// The record as it is now.
pub(super) fn load(connection: &Connection, id: &RecordId) -> Result<Option<Record>, Error> {
    let fault = |error| fault("load", error);
    let mut select = connection.prepare("SELECT * FROM onlyonce WHERE pk = ?1").map_err(fault)?;
    let mut rows = select.query([id.as_str()]).map_err(fault)?;
    rows.next().map_err(fault)?.map(decode).transpose()
}

/// Writes the record if its condition holds; false if not.
pub(super) fn write(connection: &Connection, write: &ConditionalWrite) -> Result<bool, Error> {
    let (sql, values) = match (&write.expect, &write.change) {
        (Expect::Absent, Change::Create(record)) => insert(encode(record)?),
        // There is nothing to update where there is no record.
        (Expect::Absent, Change::Update(_)) => return Ok(false),
        (Expect::At { .. }, Change::Create(record)) => update(encode(record)?, write),
        (Expect::At { .. }, Change::Update(fields)) => {
            let named: Result<Vec<Named>, Error> = fields.iter().map(columns).collect();
            update(named?.concat(), write)
        }
    };
    let changed = connection.execute(&sql, params_from_iter(&values));
    changed.map(|rows| rows == 1).map_err(|error| fault("write", error))
}

fn insert(named: Named) -> (String, Vec<SqlValue>) {
    let (names, values): (Vec<_>, Vec<_>) = named.into_iter().unzip();
    let places: Vec<_> = (1..=values.len()).map(|n| format!("?{n}")).collect();
    let (names, places) = (names.join(", "), places.join(", "));
    let sql =
        format!("INSERT INTO onlyonce ({names}) VALUES ({places}) ON CONFLICT (pk) DO NOTHING");
    (sql, values)
}

/// Sets what is named and leaves the rest, columns of a later version included. A record of a
/// later layout is left alone even by its own claim: reading it then says why.
fn update(named: Named, write: &ConditionalWrite) -> (String, Vec<SqlValue>) {
    let mut values: Vec<SqlValue> = vec![write.id.as_str().into()];
    let mut place = |value| {
        values.push(value);
        values.len()
    };
    let mut conditions = format!("pk = ?1 AND v <= {SCHEMA_VERSION}");
    if let Expect::At { claim_id, rev } = &write.expect {
        let claim_id = place(claim_id.as_str().into());
        conditions.push_str(&format!(" AND claim_id = ?{claim_id}"));
        // Past the largest integer: a revision that no record here can have.
        let rev = place(i64::try_from(rev.0).ok().into());
        conditions.push_str(&format!(" AND rev = ?{rev}"));
    }
    let sets: Vec<_> =
        named.into_iter().map(|(name, value)| format!("{name} = ?{}", place(value))).collect();
    (format!("UPDATE onlyonce SET {} WHERE {conditions}", sets.join(", ")), values)
}

/// Records in one parked status, oldest first, by the index.
pub(super) fn scan(
    connection: &Connection,
    parked: Status,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page, Error> {
    let fault = |error| fault("scan", error);
    let sql = "SELECT * FROM onlyonce WHERE parked = ?1 AND (updated_at, pk) > (?2, ?3) \
               ORDER BY updated_at, pk LIMIT ?4";
    let mut select = connection.prepare(sql).map_err(fault)?;
    // Before the first: no record is written before the epoch.
    let (at, id) = match after {
        Some(cursor) => {
            (i64::try_from(cursor.updated_at.millis()).unwrap_or(i64::MAX), cursor.id.as_str())
        }
        None => (-1, ""),
    };
    // One more than asked for says whether there are more.
    let fetched = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = select.query(params![parked.as_str(), at, id, fetched]).map_err(fault)?;
    let mut page = Page::default();
    while let Some(row) = rows.next().map_err(fault)? {
        if page.records.len() == limit {
            page.next = page
                .records
                .last()
                .map(|last| Cursor { updated_at: last.updated_at, id: last.id.clone() });
            break;
        }
        page.records.push(decode(row)?);
    }
    Ok(page)
}
