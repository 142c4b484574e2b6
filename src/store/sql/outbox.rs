//! The outbox in SQL, alike on every store.

use super::{Drafted, SqlStatement, SqlValue};
use crate::error::Error;
use crate::protocol::{OutboxEntry, Timestamp};
use crate::store::outbox::{OUTBOX, Take, column, millis};
use crate::store::{Columns, RowValue};

/// What is read of a row: its texts, and its instants.
pub const TEXTS: [&str; 7] = [
    column::ORDER_KEY,
    column::EVENT_ID,
    column::EVENT,
    column::BODY,
    column::MESSAGE_KEY,
    column::NONCE,
    column::TRACE,
];
/// See [`TEXTS`].
pub const INSTANTS: [&str; 2] = [column::CREATED_AT, column::UNTIL];

/// The columns of a row, those without a value left out.
pub fn columns<E>(
    text: impl Fn(&'static str) -> Result<Option<String>, E>,
    instant: impl Fn(&'static str) -> Result<Option<i64>, E>,
) -> Result<Columns, E> {
    let mut columns = Columns::new();
    for name in TEXTS {
        columns.extend(text(name)?.map(|text| (name.to_owned(), text.into())));
    }
    for name in INSTANTS {
        columns.extend(instant(name)?.map(|at| (name.to_owned(), RowValue::Integer(at))));
    }
    Ok(columns)
}

fn at(instant: Timestamp) -> SqlValue {
    millis(instant).into()
}

/// Takes the first entry of each order key that waits, and answers the rows. `locking` keeps two
/// that take at once from waiting for each other, where the store needs it.
pub fn take(take: &Take, locking: &str) -> Drafted {
    let sql = format!(
        "UPDATE {OUTBOX} SET taken_until = $1 WHERE seq IN (\
         SELECT seq FROM {OUTBOX} AS mine \
         WHERE sent_at IS NULL AND taken_until <= $2 AND created_at < $3 AND NOT EXISTS (\
         SELECT 1 FROM {OUTBOX} AS earlier WHERE earlier.order_key = mine.order_key \
         AND earlier.seq < mine.seq AND earlier.sent_at IS NULL) \
         ORDER BY seq LIMIT $4 {locking}) \
         RETURNING {}, {}",
        TEXTS.join(", "),
        INSTANTS.join(", ")
    );
    let limit = i64::try_from(take.limit).unwrap_or(i64::MAX);
    (sql, vec![at(take.until), at(take.now), at(take.made_before), limit.into()])
}

fn key(entry: &OutboxEntry) -> [SqlValue; 2] {
    [entry.order_key.as_str().into(), entry.event_id.as_str().into()]
}

/// What `sent` writes.
pub fn sent(entry: &OutboxEntry, when: Timestamp) -> Drafted {
    let mut values = key(entry).to_vec();
    let Some(unique) = &entry.unique else {
        return (format!("DELETE FROM {OUTBOX} WHERE order_key = $1 AND event_id = $2"), values);
    };
    values.extend([unique.nonce.as_str().into(), at(when)]);
    let sql = "SET sent_at = $4 WHERE order_key = $1 AND event_id = $2 AND nonce = $3";
    (format!("UPDATE {OUTBOX} {sql}"), values)
}

/// What `is_unsent` reads: a row, or none.
pub fn unsent(entry: &OutboxEntry) -> Drafted {
    let mut values = key(entry).to_vec();
    values.push(entry.unique.as_ref().map(|unique| unique.nonce.clone()).into());
    let sql = "order_key = $1 AND event_id = $2 AND nonce = $3 AND sent_at IS NULL";
    (format!("SELECT seq FROM {OUTBOX} WHERE {sql}"), values)
}

/// What `put_back` writes.
pub fn put_back(entry: &OutboxEntry, when: Timestamp) -> Drafted {
    let mut values = key(entry).to_vec();
    values.push(at(when));
    let sql = "SET taken_until = $3 WHERE order_key = $1 AND event_id = $2";
    (format!("UPDATE {OUTBOX} {sql}"), values)
}

/// What `clear` writes.
pub fn clear(row: &str, nonce: &str) -> Drafted {
    let sql = format!("DELETE FROM {OUTBOX} WHERE order_key = $1 AND nonce = $2");
    (sql, vec![row.into(), nonce.into()])
}

/// What `add_unique` writes: it changes one row, or none. What is not sent yet is kept, however
/// late: it was promised.
pub fn add_unique(entry: &OutboxEntry, now: Timestamp) -> Drafted {
    let mut values = key(entry).to_vec();
    let columns = entry.value_columns();
    values.extend(columns.values().cloned().map(SqlValue::from));
    values.push(at(now));
    let names: Vec<_> = columns.keys().map(String::as_str).collect();
    let places: Vec<_> = (0..names.len()).map(|n| format!("${}", n + 3)).collect();
    let anew: Vec<_> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let sql = format!(
        "INSERT INTO {OUTBOX} (order_key, event_id, {}) VALUES ($1, $2, {}) \
         ON CONFLICT (order_key, event_id) DO UPDATE SET {}, sent_at = NULL, taken_until = 0 \
         WHERE {OUTBOX}.until <= ${} AND {OUTBOX}.sent_at IS NOT NULL",
        names.join(", "),
        places.join(", "),
        anew.join(", "),
        values.len()
    );
    (sql, values)
}

/// For a transaction of your own.
impl TryFrom<&OutboxEntry> for SqlStatement {
    type Error = Error;

    fn try_from(entry: &OutboxEntry) -> Result<Self, Error> {
        entry.checked()?;
        let all: Columns = entry.key_columns().into_iter().chain(entry.value_columns()).collect();
        let names: Vec<_> = all.keys().map(String::as_str).collect();
        let places: Vec<_> = (1..=all.len()).map(|n| format!("${n}")).collect();
        let (names, places) = (names.join(", "), places.join(", "));
        Ok(Self {
            sql: format!("INSERT INTO {OUTBOX} ({names}) VALUES ({places})"),
            params: all.into_values().map(SqlValue::from).collect(),
            expect_changes: Some(1),
        })
    }
}
