//! An SQS event, record by record: what is wrong with one record stays with it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::message::{Attribute, AttributeValue, Message};
use super::whole;
use crate::error::{Error, ErrorKind};
use crate::protocol::{Timestamp, TraceParent};

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The messages of an SQS event, in order.
///
/// No records, for `null` or an empty list, is no message. An event of another service is an
/// error, and so is a record without a message id: it could not be reported, and what is not
/// reported is deleted.
pub fn messages(event: &str) -> Result<Vec<Message>, Error> {
    match whole::messages(event) {
        Some(messages) => Ok(messages),
        None => one_by_one(event),
    }
}

/// The same, with whatever is wrong found where it is.
pub(super) fn one_by_one(event: &str) -> Result<Vec<Message>, Error> {
    let top: Fields<'_> = serde_json::from_str(event).map_err(|_| foreign("it is no object"))?;
    let Some(records) = top.get("Records") else {
        if top.is_empty() {
            return Ok(Vec::new());
        }
        return Err(foreign("it has no Records"));
    };
    let records: Option<Vec<&RawValue>> =
        serde_json::from_str(records.get()).map_err(|_| foreign("its Records are no list"))?;
    records.unwrap_or_default().into_iter().map(message).collect()
}

fn foreign(why: &str) -> Error {
    Error::new(ErrorKind::Event, "read the event").with_detail(format!(
        "this is not an SQS event: {why}; connect this function to an SQS queue only"
    ))
}

fn message(record: &RawValue) -> Result<Message, Error> {
    let fields: Fields<'_> =
        serde_json::from_str(record.get()).map_err(|_| foreign("a record is no object"))?;
    let mut record = Record { fields, fault: None };

    let source = record.text("eventSource");
    if let Some(source) = source.filter(|source| source != "aws:sqs") {
        let source: String = source.chars().take(100).collect();
        return Err(foreign(&format!("a record comes from {source:?}")));
    }
    let id = record.text("messageId").filter(|id| !id.is_empty()).ok_or_else(|| {
        Error::new(ErrorKind::Event, "read the event").with_detail(
            "a record has no messageId, so its failure could not be reported; \
             nothing of this batch was run",
        )
    })?;
    let system: BTreeMap<String, Option<String>> = record.read("attributes").unwrap_or_default();
    let system = |name: &str| system.get(name).cloned().flatten();
    let attributes = record.attributes();
    Ok(Message {
        id,
        receipt: record.text("receiptHandle"),
        body: record.text("body"),
        attributes,
        sent_at: system("SentTimestamp").and_then(|ms| ms.parse().ok()).map(Timestamp::from_millis),
        group: system("MessageGroupId"),
        asks: None,
        source_arn: record.text("eventSourceARN"),
        xray: system("AWSTraceHeader").and_then(|header| TraceParent::from_xray(&header)),
        fault: record.fault,
    })
}

/// One record's fields, and the first thing that was wrong with them.
struct Record<'a> {
    fields: Fields<'a>,
    fault: Option<String>,
}

impl Record<'_> {
    /// A field; absent and null are the same, and another type is this record's fault.
    fn read<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let read = serde_json::from_str(self.fields.get(name)?.get());
        read.unwrap_or_else(|_| {
            self.wrong(format!("the record's {name} is not of the type SQS gives it"));
            None
        })
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.read(name)
    }

    fn wrong(&mut self, fault: String) {
        self.fault.get_or_insert(fault);
    }

    fn attributes(&mut self) -> BTreeMap<String, Attribute> {
        let stored: BTreeMap<String, Option<StoredAttribute>> =
            self.read("messageAttributes").unwrap_or_default();
        let mut attributes = BTreeMap::new();
        for (name, attribute) in stored {
            match attribute.map(StoredAttribute::decode) {
                None | Some(Ok(None)) => {}
                Some(Ok(Some(attribute))) => {
                    attributes.insert(name, attribute);
                }
                Some(Err(())) => {
                    let name: String = name.chars().take(100).collect();
                    self.wrong(format!("the binary value of attribute {name:?} is not base64"));
                }
            }
        }
        attributes
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredAttribute {
    data_type: Option<String>,
    string_value: Option<String>,
    binary_value: Option<String>,
}

impl StoredAttribute {
    /// `None` if it carries no value.
    pub fn decode(self) -> Result<Option<Attribute>, ()> {
        let (kind, value) = match (self.string_value, self.binary_value) {
            (Some(text), _) => ("String", AttributeValue::Text(text)),
            (None, Some(base64)) => {
                let bytes = STANDARD.decode(base64).map_err(drop)?;
                ("Binary", AttributeValue::Binary(bytes))
            }
            (None, None) => return Ok(None),
        };
        let data_type = self.data_type.unwrap_or_else(|| kind.to_owned());
        Ok(Some(Attribute { data_type, value }))
    }
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
