//! Reading and writing records, inside a transaction or beside one.

use rusqlite::{Connection, params};

use super::bind::{Unfit, bind};
use super::fault::fault;
use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};
use crate::store::sql::{decode, record_sql};
use crate::store::{Cursor, Page, Walk};

/// The record as it is now.
pub(super) fn load(connection: &Connection, id: &RecordId) -> Result<Option<Record>, Error> {
    let fault = |error| fault("load", error);
    let mut select = connection.prepare("SELECT * FROM onlyonce WHERE pk = ?1").map_err(fault)?;
    let mut rows = select.query([id.as_str()]).map_err(fault)?;
    rows.next().map_err(fault)?.map(|row| decode(row)).transpose()
}

/// Writes the record if its condition holds; false if not.
pub(super) fn write(connection: &Connection, write: &ConditionalWrite) -> Result<bool, Error> {
    let fault = |error| fault("write", error);
    let Some((sql, values)) = record_sql(write)? else {
        return Ok(false);
    };
    let mut statement = connection.prepare(&sql).map_err(fault)?;
    bind(&mut statement, &values).map_err(|unfit| match unfit {
        Unfit::Sqlite(error) => fault(error),
        Unfit::Parameters(why) => Error::new(ErrorKind::StoreRefused, "write").with_detail(why),
    })?;
    Ok(statement.raw_execute().map_err(fault)? == 1)
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
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        if records.len() == limit {
            return Ok(Page::of(records, true));
        }
        records.push(decode(row)?);
    }
    Ok(Page::of(records, false))
}

/// All records, by id.
pub(super) fn walk(
    connection: &Connection,
    after: Option<String>,
    limit: usize,
) -> Result<Walk, Error> {
    let fault = |error| fault("walk", error);
    let sql = "SELECT * FROM onlyonce WHERE pk > ?1 ORDER BY pk LIMIT ?2";
    let mut select = connection.prepare(sql).map_err(fault)?;
    // One more than asked for says whether there are more.
    let fetched = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = select.query(params![after.unwrap_or_default(), fetched]).map_err(fault)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next().map_err(fault)? {
        if records.len() == limit {
            return Ok(Walk::of(records, true));
        }
        records.push(decode(row)?);
    }
    Ok(Walk::of(records, false))
}
