//! The ledger as the command reads it: consistently, and by the keys it knows.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::ledger::{HELD, Ledger, MOST_ROWS, provider_pk, row_pk, staged_pk};
use super::row::{Event, Row};
use super::scenario::DrillKey;
use crate::error::{Error, ErrorKind};

/// Items in one request, DynamoDB's most.
const BATCH: usize = 100;
/// Requests at once.
const AT_ONCE: usize = 4;
/// Rows of a key that are asked for at a time.
const ROWS: usize = 5;
/// How often what was left of a batch is asked for again.
const TRIES: usize = 20;

type Item = HashMap<String, AttributeValue>;

/// What the ledger keeps of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// In the order in which they were written.
    pub rows: Vec<Row>,
    /// Provider's keys under which something was done.
    pub accepted: usize,
    /// How often its staged write was done.
    pub staged: u64,
}

/// Reads a ledger.
pub(crate) struct Reading<'a>(pub &'a Ledger);

impl Reading<'_> {
    /// What is kept of each of these keys.
    pub async fn kept(&self, keys: &[DrillKey]) -> Result<HashMap<DrillKey, Kept>, Error> {
        let mut kept: HashMap<DrillKey, Kept> =
            keys.iter().map(|key| (key.clone(), Kept::default())).collect();
        let mut open: Vec<&DrillKey> = keys.iter().collect();
        let (mut from, mut unreadable) = (0, 0);
        while !open.is_empty() && from < MOST_ROWS {
            let pks =
                |key: &&DrillKey| (from..from + ROWS).map(|n| row_pk(key, n)).collect::<Vec<_>>();
            let found = self.items(open.iter().flat_map(pks).collect()).await?;
            open.retain(|key| {
                let rows = (from..from + ROWS).map_while(|n| found.get(&row_pk(key, n)));
                let rows: Vec<Option<Row>> = rows.map(row).collect();
                let is_all = rows.len() < ROWS;
                unreadable += rows.iter().filter(|row| row.is_none()).count();
                if let Some(kept) = kept.get_mut(key) {
                    kept.rows.extend(rows.into_iter().flatten());
                }
                !is_all
            });
            // What is not understood is not left out.
            if unreadable > 0 {
                return Err(Error::new(ErrorKind::Record, "read the ledger").with_detail(format!(
                    "{unreadable} rows are not understood: the worker is of another version than \
                     this command"
                )));
            }
            from += ROWS;
        }
        let mut accepted = Vec::new();
        for (key, kept) in &kept {
            let mut called: Vec<&str> = kept.rows.iter().filter_map(called).collect();
            called.sort_unstable();
            called.dedup();
            accepted.extend(called.into_iter().map(|it| (key.clone(), provider_pk(key, it))));
        }
        let pks = accepted.iter().map(|(_, pk)| pk.clone());
        let pks = pks.chain(keys.iter().filter(|key| !key.scenario.is_brief()).map(staged_pk));
        let found = self.items(pks.collect()).await?;
        for (key, pk) in accepted {
            if let Some(kept) = kept.get_mut(&key).filter(|_| found.contains_key(&pk)) {
                kept.accepted += 1;
            }
        }
        for (key, kept) in &mut kept {
            let times = found.get(&staged_pk(key)).and_then(|item| item.get("done_times"));
            let times = times.and_then(|times| times.as_n().ok()?.parse().ok());
            kept.staged = times.unwrap_or_default();
        }
        Ok(kept)
    }

    async fn items(&self, pks: Vec<String>) -> Result<HashMap<String, Item>, Error> {
        let batches: Vec<Vec<String>> = pks.chunks(BATCH).map(<[String]>::to_vec).collect();
        let found = stream::iter(batches).map(|batch| self.batch(batch)).buffer_unordered(AT_ONCE);
        let found: Vec<Vec<(String, Item)>> = found.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn batch(&self, pks: Vec<String>) -> Result<Vec<(String, Item)>, Error> {
        let Ledger { client, table, .. } = self.0;
        let fault = |error: crate::error::BoxError| {
            Error::new(ErrorKind::StoreUnavailable, "read the ledger").with_source(error)
        };
        let keys =
            pks.into_iter().map(|pk| HashMap::from([("pk".to_owned(), AttributeValue::S(pk))]));
        let mut left = Some(
            KeysAndAttributes::builder()
                .set_keys(Some(keys.collect()))
                .consistent_read(true)
                .build()
                .map_err(|error| fault(error.into()))?,
        );
        let mut found = Vec::new();
        for _ in 0..TRIES {
            let Some(asked) = left.take() else { return Ok(found) };
            let got = client.batch_get_item().request_items(table, asked).send().await;
            let got = got.map_err(|error| fault(error.into()))?;
            let items = got.responses.unwrap_or_default().remove(table).unwrap_or_default();
            found.extend(items.into_iter().filter_map(|item| {
                let pk = item.get("pk")?.as_s().ok()?.clone();
                Some((pk, item))
            }));
            left = got.unprocessed_keys.and_then(|mut left| left.remove(table));
        }
        match left {
            None => Ok(found),
            Some(_) => Err(fault(
                "the table is throttled, and parts of it were not read: give it more capacity, or play \
                 the drill again with less beside it"
                    .into(),
            )),
        }
    }
}

fn row(item: &Item) -> Option<Row> {
    serde_json::from_str(item.get(HELD)?.as_s().ok()?).ok()
}

fn called(row: &Row) -> Option<&str> {
    match &row.event {
        Event::Called { key, .. } => Some(key),
        _ => None,
    }
}
