//! Reading and writing records.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use super::fault::fault;
use super::value::{storable, typeless};
use crate::error::Error;
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};
use crate::store::sql::{SqlValue, decode, record_sql};
use crate::store::{Commit, Cursor, Page, Walk};

/// The record as it is now.
pub(super) async fn load(client: &Client, id: &RecordId) -> Result<Option<Record>, Error> {
    let sql = "SELECT * FROM onlyonce WHERE pk = $1";
    let found = client.query_typed_opt(sql, &[(&id.as_str(), Type::TEXT)]).await;
    found.map_err(|error| fault("load", error))?.map(|row| decode(&row)).transpose()
}

/// Writes the record if its condition holds; else brings the record, mostly in the same round trip.
pub(super) async fn write(client: &Client, write: &ConditionalWrite) -> Result<Commit, Error> {
    let Some((sql, values)) = record_sql(write)? else {
        return Ok(conflict(load(client, &write.id).await?));
    };
    let values: Vec<_> = values.into_iter().map(storable).collect();
    let sql = format!(
        "WITH landed AS ({sql} RETURNING 1) SELECT landed.n AS landed, onlyonce.* \
         FROM (SELECT count(*) AS n FROM landed) AS landed \
         LEFT JOIN onlyonce ON onlyonce.pk = $1 AND landed.n = 0"
    );
    let row = client.query_typed_one(&sql, &typeless(&values)).await;
    let row = row.map_err(|error| fault("write", error))?;
    let landed: i64 = row.try_get("landed").map_err(|error| fault("write", error))?;
    if landed == 1 {
        return Ok(Commit::Applied);
    }
    let seen = shown(&row)?;
    // The record is shown as it was when the statement began. If it was as expected then, another
    // write came first while this one waited: that is to be seen by looking again.
    if write.expect.holds(seen.as_ref()) {
        return Ok(conflict(load(client, &write.id).await?));
    }
    Ok(conflict(seen))
}

fn conflict(current: Option<Record>) -> Commit {
    Commit::Conflict(current.map(Box::new))
}

fn shown(row: &Row) -> Result<Option<Record>, Error> {
    let pk: Option<&str> = row.try_get("pk").map_err(|error| fault("write", error))?;
    pk.map(|_| decode(row)).transpose()
}

/// Records in one parked status, oldest first, by the index.
pub(super) async fn scan(
    client: &Client,
    parked: Status,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page, Error> {
    let sql = "SELECT * FROM onlyonce WHERE parked = $1 AND (updated_at, pk) > ($2, $3) \
               ORDER BY updated_at, pk LIMIT $4";
    // Before the first: no record is written before the epoch.
    let (at, id) = match after {
        Some(cursor) => {
            (i64::try_from(cursor.updated_at.millis()).unwrap_or(i64::MAX), cursor.id.as_str())
        }
        None => (-1, ""),
    };
    // One more than asked for says whether there are more.
    let fetched = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let values: [SqlValue; 4] = [parked.as_str().into(), at.into(), id.into(), fetched.into()];
    let rows = client.query_typed(sql, &typeless(&values)).await;
    let rows = rows.map_err(|error| fault("scan", error))?;
    let records: Result<Vec<_>, _> = rows.iter().take(limit).map(|row| decode(row)).collect();
    Ok(Page::of(records?, rows.len() > limit))
}

/// All records, by id.
pub(super) async fn walk(
    client: &Client,
    after: Option<&str>,
    limit: usize,
) -> Result<Walk, Error> {
    let sql = "SELECT * FROM onlyonce WHERE pk > $1 ORDER BY pk LIMIT $2";
    // One more than asked for says whether there are more.
    let fetched = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let values: [SqlValue; 2] = [after.unwrap_or_default().into(), fetched.into()];
    let rows = client.query_typed(sql, &typeless(&values)).await;
    let rows = rows.map_err(|error| fault("walk", error))?;
    let records: Result<Vec<_>, _> = rows.iter().take(limit).map(|row| decode(row)).collect();
    Ok(Walk::of(records?, rows.len() > limit))
}
