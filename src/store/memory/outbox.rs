//! The outbox in memory: rows of one table.

use async_trait::async_trait;

use super::{MemoryStore, RowAt};
use crate::error::Error;
use crate::protocol::{OutboxEntry, Timestamp};
use crate::store::outbox::{OUTBOX, Outbox, Place, Take, Taken, column, millis};
use crate::store::{Columns, RowValue};

fn place_of(entry: &OutboxEntry) -> RowAt {
    (OUTBOX.to_owned(), entry.key_columns())
}

#[async_trait]
impl Outbox for MemoryStore {
    async fn take(&self, take: Take) -> Result<Taken, Error> {
        let state = self.state();
        let rows = state.rows.iter().filter(|((table, _), columns)| {
            table == OUTBOX && !columns.contains_key(column::SENT_AT)
        });
        let mut entries = Vec::new();
        for ((_, key), values) in rows {
            let columns = key.iter().chain(values).map(|(n, v)| (n.clone(), v.clone())).collect();
            entries.extend(OutboxEntry::of_row(Ok(columns)));
        }
        let after = take.after.map(|place| (place.order_key, place.event_id));
        let place =
            |entry: &OutboxEntry| (entry.order_key.clone(), entry.event_id.as_str().to_owned());
        entries.retain(|entry| {
            entry.created_at < take.made_before
                && after.as_ref().is_none_or(|last| place(entry) > *last)
        });
        entries.sort_by_key(place);
        let is_more = entries.len() > take.limit;
        entries.truncate(take.limit);
        let next = entries.last().filter(|_| is_more).map(|last| {
            let (order_key, event_id) = place(last);
            Place { order_key, event_id }
        });
        Ok(Taken { entries, next })
    }

    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        let mut state = self.state();
        match &entry.unique {
            None => drop(state.rows.remove(&place_of(entry))),
            Some(unique) => {
                let nonce = RowValue::from(unique.nonce.as_str());
                let row = state.rows.get_mut(&place_of(entry));
                if let Some(row) = row.filter(|row| row.get(column::NONCE) == Some(&nonce)) {
                    row.insert(column::SENT_AT.to_owned(), millis(at));
                }
            }
        }
        Ok(())
    }

    async fn put_back(&self, _entry: &OutboxEntry, _at: Timestamp) -> Result<(), Error> {
        Ok(())
    }

    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error> {
        let nonce = entry.unique.as_ref().map(|unique| RowValue::from(unique.nonce.as_str()));
        let state = self.state();
        let row = state.rows.get(&place_of(entry));
        Ok(row.is_some_and(|row| {
            row.get(column::NONCE) == nonce.as_ref() && !row.contains_key(column::SENT_AT)
        }))
    }

    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error> {
        let mut state = self.state();
        let is_it = |(table, key): &RowAt, values: &Columns| {
            table == OUTBOX
                && key.get(column::ORDER_KEY) == Some(&row.into())
                && values.get(column::NONCE) == Some(&nonce.into())
        };
        state.rows.retain(|at, values| !is_it(at, values));
        Ok(())
    }

    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error> {
        let mut state = self.state();
        // What is not sent yet is kept, however late: it was promised.
        let is_held = |row: &Columns| {
            !row.contains_key(column::SENT_AT)
                || row.get(column::UNTIL).is_some_and(|until| *until > millis(now))
        };
        if state.rows.get(&place_of(entry)).is_some_and(is_held) {
            return Ok(false);
        }
        state.rows.insert(place_of(entry), entry.value_columns());
        Ok(true)
    }
}
