//! The stream of an outbox's table: which rows came, and which must come again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use tracing::error;

use super::Relay;
use crate::error::{Error, ErrorKind};
use crate::front::{BatchResponse, ItemFailure};
use crate::protocol::{OutboxEntry, Timestamp, as_made};
use crate::service::Deadline;
use crate::store::{Columns, RowValue, column};

/// What an attempt should have at least, to be worth waiting for.
const WORTH: Duration = Duration::from_secs(1);

impl Relay {
    /// Answers one event of the stream. `hard` is when the platform ends the invocation.
    ///
    /// The stream goes on behind the entry that the answer names; what comes again because of it
    /// and was sent on already is known by its id.
    pub async fn answer(&self, event: &str, hard: Timestamp) -> Result<BatchResponse, Error> {
        let (numbers, entries): (Vec<_>, Vec<_>) = entries(event)?.into_iter().unzip();
        let order = as_made(&entries);
        let entries: Vec<_> = order.iter().filter_map(|at| entries.get(*at)).cloned().collect();
        let deadline = Deadline::new(self.worker.clock().now(), hard);
        let left = self.until_sent(&entries, deadline).await;
        // Lambda goes on from the lowest, whatever else is named.
        let first = left.iter().filter_map(|at| order.get(*at)).min();
        let first = first.and_then(|at| numbers.into_iter().nth(*at));
        let failure = |item_identifier| ItemFailure { item_identifier };
        Ok(BatchResponse { batch_item_failures: first.into_iter().map(failure).collect() })
    }

    /// Sends entries on, waits for what is due again before the deadline, and answers the positions
    /// of those that are still to go: the stream would bring them again at once.
    async fn until_sent(&self, entries: &[OutboxEntry], deadline: Deadline) -> Vec<usize> {
        let mut left: Vec<usize> = (0..entries.len()).collect();
        loop {
            let due = self.try_each(entries, &left, deadline).await;
            let soonest = due.values().flatten().min().copied();
            left = due.into_keys().collect();
            left.sort_unstable();
            match soonest {
                Some(at) if at + WORTH < deadline.stop => {
                    self.worker.clock().sleep_until(at).await;
                }
                _ => return left,
            }
        }
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Records")]
    records: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "eventName")]
    name: String,
    dynamodb: Change,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Change {
    sequence_number: String,
    new_image: Option<BTreeMap<String, Attribute>>,
}

/// An attribute in DynamoDB's JSON; of the types that an entry has.
#[derive(Deserialize)]
#[serde(untagged)]
enum Attribute {
    Text {
        #[serde(rename = "S")]
        value: String,
    },
    Number {
        #[serde(rename = "N")]
        value: String,
    },
    Other(serde::de::IgnoredAny),
}

impl Attribute {
    fn value(self) -> Option<RowValue> {
        match self {
            Self::Text { value } => Some(value.into()),
            Self::Number { value } => value.parse::<i64>().ok().map(RowValue::Integer),
            Self::Other(_) => None,
        }
    }
}

/// The entries that are to be sent on, each with its place in the stream.
fn entries(event: &str) -> Result<Vec<(String, OutboxEntry)>, Error> {
    let event: Event = serde_json::from_str(event).map_err(|error| {
        Error::new(ErrorKind::Event, "read the event")
            .with_detail("this is no event of a DynamoDB stream")
            .with_source(error)
    })?;
    let mut entries = Vec::new();
    for Record { name, dynamodb: Change { sequence_number, new_image } } in event.records {
        if name == "REMOVE" {
            continue;
        }
        let image = new_image.ok_or_else(|| {
            Error::new(ErrorKind::Config, "read the event").with_detail(
                "the stream does not carry the new row; set its view type to NEW_IMAGE",
            )
        })?;
        let columns: Columns =
            image.into_iter().filter_map(|(name, held)| Some((name, held.value()?))).collect();
        // The row that has just been marked as sent.
        if columns.contains_key(column::SENT_AT) {
            continue;
        }
        match OutboxEntry::of_columns(&columns) {
            Ok(entry) => entries.push((sequence_number, entry)),
            // The row stays where it is; all the others go on.
            Err(error) => {
                error!(sequence_number, %error, "a row of the outbox is none; correct it, or delete it");
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(event_id: &str) -> serde_json::Value {
        json!({
            "order_key": {"S": "order-42"}, "event_id": {"S": event_id}, "event": {"S": "order.placed"},
            "body": {"S": "{}"}, "created_at": {"N": "17"}, "tags": {"SS": ["a"]}, "gone": {"NULL": true},
        })
    }

    fn record(name: &str, number: u32, image: Option<serde_json::Value>) -> serde_json::Value {
        let mut change = json!({"SequenceNumber": number.to_string(), "Keys": {}});
        if let Some(image) = image {
            change["NewImage"] = image;
        }
        json!({"eventName": name, "eventSource": "aws:dynamodb", "dynamodb": change})
    }

    fn read(records: &[serde_json::Value]) -> Result<Vec<(String, String)>, Error> {
        let entries = entries(&json!({"Records": records}).to_string())?;
        Ok(entries.into_iter().map(|(at, e)| (at, e.event_id.as_str().to_owned())).collect())
    }

    #[test]
    fn new_rows_are_entries_and_all_else_is_not() {
        let mut sent = row("sent");
        sent["sent_at"] = json!({"N": "18"});
        let mut foreign = row("foreign");
        foreign["body"] = json!({"B": "AAAA"});
        let records = [
            record("INSERT", 1, Some(row("first"))),
            record("REMOVE", 2, None),
            record("MODIFY", 3, Some(sent)),
            record("INSERT", 4, Some(foreign)),
            record("MODIFY", 5, Some(row("again"))),
        ];
        let of = |at: &str, id: &str| (at.to_owned(), id.to_owned());
        assert_eq!(read(&records).unwrap(), [of("1", "first"), of("5", "again")]);
    }

    #[test]
    fn a_stream_without_the_rows_says_what_to_set() {
        let error = read(&[record("INSERT", 1, None)]).unwrap_err();
        assert!(error.to_string().contains("NEW_IMAGE"), "{error}");
    }
}
