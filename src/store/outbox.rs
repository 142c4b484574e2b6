//! The outbox of a store: events that were committed and are not sent on yet.

use async_trait::async_trait;
use tracing::error;

use super::{Columns, RowValue, RowWrite};
use crate::error::{Error, ErrorKind};
use crate::protocol::{IdempotencyKey, OutboxEntry, Timestamp, TraceParent, Unique};

/// Keeps what is on its way out.
///
/// The guarantee every store gives: an entry is taken again until [`sent`](Self::sent) has been
/// told of it, and the first of an order key before the second.
#[async_trait]
pub trait Outbox: Send + Sync + 'static {
    /// Entries that wait to be sent on, those of one order key in their order. May give an entry
    /// that another has taken: whoever sends it on must hold a claim of its id.
    async fn take(&self, take: Take) -> Result<Taken, Error>;

    /// The entry was sent on at this time: its row goes, or, if it is a unique message, stays and is
    /// not taken again.
    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error>;

    /// The entry could not be sent on and is not to be taken before `at`. Best effort.
    async fn put_back(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error>;

    /// Whether a unique message is still to be sent: what a stream brings may have gone long ago.
    /// What [`take`](Self::take) answers is.
    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error>;

    /// Clears the row of a unique message, unless a later one has taken its place.
    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error>;

    /// Adds a unique message, unless another with its row waits or runs at `now`; one that is not
    /// sent yet waits, however late it is. Answers whether it did. The entry has been checked.
    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error>;
}

/// What is to be taken.
#[derive(Clone, Debug)]
pub struct Take {
    /// Now.
    pub now: Timestamp,
    /// Made before this.
    pub made_before: Timestamp,
    /// Until when it is nobody else's, on a store that can say so.
    pub until: Timestamp,
    /// At most so many.
    pub limit: usize,
    /// Where the last look ended.
    pub after: Option<Place>,
}

/// Where a look at an outbox goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The last order key seen.
    pub order_key: String,
    /// The last event seen of it.
    pub event_id: String,
}

/// What was taken.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// The entries.
    pub entries: Vec<OutboxEntry>,
    /// Where to go on; `None` at the end.
    pub next: Option<Place>,
}

/// Its table, where it stands beside the records and its name is not theirs to choose.
pub(crate) const OUTBOX: &str = "onlyonce_outbox";

/// The names of an entry's columns; of a table's attributes, too.
pub(crate) mod column {
    pub const ORDER_KEY: &str = "order_key";
    pub const EVENT_ID: &str = "event_id";
    pub const EVENT: &str = "event";
    pub const BODY: &str = "body";
    pub const CREATED_AT: &str = "created_at";
    /// Of a unique message.
    pub const MESSAGE_KEY: &str = "message_key";
    pub const NONCE: &str = "nonce";
    pub const UNTIL: &str = "until";
    pub const SENT_AT: &str = "sent_at";
    /// Of an event in a trace.
    pub const TRACE: &str = "traceparent";
}

/// An instant as a column holds it.
pub(crate) fn millis(at: Timestamp) -> RowValue {
    RowValue::Integer(i64::try_from(at.millis()).unwrap_or(i64::MAX))
}

/// The event id of each unique message's row: its order key alone tells it from others.
pub(crate) const UNIQUE: &str = "unique";

/// Clears the row of a unique message, unless a later one has taken its place.
pub(crate) fn clear_unique(table: String, row: &str, nonce: &str) -> RowWrite {
    let column = |name: &str, value: &str| (name.to_owned(), RowValue::from(value));
    RowWrite::DeleteIf {
        table,
        key: [column(column::ORDER_KEY, row), column(column::EVENT_ID, UNIQUE)].into(),
        values: [column(column::NONCE, nonce)].into(),
    }
}

impl OutboxEntry {
    /// The entry as a row of `table`, to commit with what it tells of: the table that
    /// [`Capabilities::outbox`](super::Capabilities) names.
    pub fn row(&self, table: &str) -> Result<RowWrite, Error> {
        self.checked()?;
        Ok(RowWrite::PutIfAbsent {
            table: table.to_owned(),
            key: self.key_columns(),
            values: self.value_columns(),
        })
    }

    /// Refuses what some store or queue would not take.
    pub(crate) fn checked(&self) -> Result<(), Error> {
        self.check().map_err(|error| Error::new(ErrorKind::Staged, "outbox").with_source(error))
    }

    pub(crate) fn key_columns(&self) -> Columns {
        let key =
            [(column::ORDER_KEY, &*self.order_key), (column::EVENT_ID, self.event_id.as_str())];
        key.map(|(name, value)| (name.to_owned(), value.into())).into()
    }

    pub(crate) fn value_columns(&self) -> Columns {
        let mut values = vec![
            (column::EVENT, self.event.as_str().into()),
            (column::BODY, self.body.as_str().into()),
            (column::CREATED_AT, millis(self.created_at)),
        ];
        if let Some(Unique { key, nonce, until }) = &self.unique {
            values.push((column::MESSAGE_KEY, key.as_str().into()));
            values.push((column::NONCE, nonce.as_str().into()));
            values.push((column::UNTIL, millis(*until)));
        }
        if let Some(trace) = &self.trace {
            values.push((column::TRACE, trace.as_str().into()));
        }
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The entry of a row that was read. One that is none is told of, and stays where it is: it
    /// must keep no other from being sent.
    pub(crate) fn of_row(columns: Result<Columns, Error>) -> Option<Self> {
        let entry = columns.and_then(|columns| Self::of_columns(&columns));
        entry
            .inspect_err(|error| {
                error!(%error, "a row of the outbox is none; correct it, or delete it");
            })
            .ok()
    }

    /// The entry as its columns show it, the key's among them; or the column that is wrong.
    pub(crate) fn of_columns(columns: &Columns) -> Result<Self, Error> {
        let wrong = |name| {
            let detail =
                format!("column {name} of an outbox row is missing, empty or of the wrong type");
            Error::new(ErrorKind::Record, "decode").with_detail(detail)
        };
        let maybe = |name| match columns.get(name) {
            None => Ok(None),
            // No queue takes an empty text, not even in quarantine.
            Some(RowValue::Text(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(wrong(name)),
        };
        let text = |name| maybe(name)?.ok_or_else(|| wrong(name));
        let instant = |name| match columns.get(name) {
            Some(RowValue::Integer(ms)) => u64::try_from(*ms).ok(),
            _ => None,
        };
        let instant = |name| instant(name).map(Timestamp::from_millis).ok_or_else(|| wrong(name));
        let key = |name| IdempotencyKey::new(text(name)?).map_err(|_| wrong(name));
        let unique = match maybe(column::NONCE)? {
            None => None,
            Some(nonce) => Some(Unique {
                key: key(column::MESSAGE_KEY)?,
                nonce,
                until: instant(column::UNTIL)?,
            }),
        };
        Ok(Self {
            order_key: text(column::ORDER_KEY)?,
            event_id: key(column::EVENT_ID)?,
            event: text(column::EVENT)?,
            body: text(column::BODY)?,
            created_at: instant(column::CREATED_AT)?,
            unique,
            // No event is held up by what only shows where it came from.
            trace: match columns.get(column::TRACE) {
                Some(RowValue::Text(text)) => TraceParent::new(text.as_str()).ok(),
                _ => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(unique: Option<Unique>) -> OutboxEntry {
        OutboxEntry {
            order_key: "order-42".to_owned(),
            event_id: IdempotencyKey::new("0000000000001-000-a").unwrap(),
            event: "order.placed".to_owned(),
            body: "{\"é\":1}".to_owned(),
            created_at: Timestamp::from_millis(1),
            unique,
            trace: None,
        }
    }

    #[test]
    fn an_entry_is_read_back_as_written() {
        let unique = Unique {
            key: IdempotencyKey::new("order-42:mail").unwrap(),
            nonce: "n".to_owned(),
            until: Timestamp::from_millis(9),
        };
        for entry in [entry(None), entry(Some(unique))] {
            let RowWrite::PutIfAbsent { table, key, values } = entry.row("outbox").unwrap() else {
                panic!("it is put");
            };
            assert_eq!(table, "outbox");
            let columns: Columns = key.into_iter().chain(values).collect();
            assert_eq!(OutboxEntry::of_columns(&columns).unwrap(), entry);
            for name in columns.keys() {
                let mut less = columns.clone();
                less.remove(name);
                match OutboxEntry::of_columns(&less) {
                    // Without its nonce it is no unique message.
                    Ok(read) => {
                        assert!(name == "nonce" || (entry.unique.is_none() && read == entry))
                    }
                    Err(error) => assert!(error.to_string().contains(name.as_str()), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_trace_goes_along_and_holds_nothing_up() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let entry = OutboxEntry { trace: TraceParent::new(trace).ok(), ..entry(None) };
        let mut columns = entry.key_columns();
        columns.extend(entry.value_columns());
        assert_eq!(OutboxEntry::of_columns(&columns).unwrap(), entry);
        columns.insert(column::TRACE.to_owned(), "not one".into());
        let read = OutboxEntry::of_columns(&columns).unwrap();
        assert_eq!(read, OutboxEntry { trace: None, ..entry });
    }

    #[test]
    fn an_entry_that_no_queue_takes_is_refused() {
        let entry = OutboxEntry { body: "x".repeat(300_000), ..entry(None) };
        let error = entry.row("outbox").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains("300000 bytes"), "{error}");
    }
}
