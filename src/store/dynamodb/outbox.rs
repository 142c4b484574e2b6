//! The outbox: a table of its own, read through its stream and, for what that has missed, whole.

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::AttributeValue;

use super::DynamoStore;
use super::error::sdk_error;
use super::item::Attributes;
use super::rows::encode;
use crate::error::Error;
use crate::protocol::{OutboxEntry, Timestamp};
use crate::store::outbox::{Outbox, Place, Take, Taken, UNIQUE, column};
use crate::store::{Columns, RowValue};

/// For how long a unique message's row is kept past its end: DynamoDB's TTL counts in seconds.
const KEPT_SECONDS: u64 = 24 * 3600;

impl DynamoStore {
    /// The table of the outbox that belongs to these records.
    pub(super) fn outbox_table(&self) -> String {
        format!("{}-outbox", self.table)
    }
}

fn key(entry: &OutboxEntry) -> Attributes {
    encode(&entry.key_columns())
}

fn millis(at: Timestamp) -> AttributeValue {
    AttributeValue::N(at.millis().to_string())
}

/// What an attribute says, where a row may say it.
fn value(attribute: &AttributeValue) -> Option<RowValue> {
    match attribute {
        AttributeValue::S(text) => Some(text.as_str().into()),
        AttributeValue::N(number) => number.parse::<i64>().ok().map(RowValue::Integer),
        AttributeValue::Bool(value) => Some((*value).into()),
        _ => None,
    }
}

fn columns(attributes: &Attributes) -> Columns {
    attributes.iter().filter_map(|(name, held)| Some((name.clone(), value(held)?))).collect()
}

fn place(key: &Attributes) -> Option<Place> {
    let text = |name| key.get(name)?.as_s().ok().cloned();
    Some(Place { order_key: text(column::ORDER_KEY)?, event_id: text(column::EVENT_ID)? })
}

fn start(place: Place) -> Attributes {
    let key = [(column::ORDER_KEY, place.order_key), (column::EVENT_ID, place.event_id)];
    key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))).into()
}

#[async_trait]
impl Outbox for DynamoStore {
    /// Reads the whole table, which holds what is still to be sent on and little else.
    async fn take(&self, take: Take) -> Result<Taken, Error> {
        let limit = i32::try_from(take.limit).unwrap_or(i32::MAX);
        let found = self
            .client
            .scan()
            .table_name(self.outbox_table())
            .consistent_read(true)
            .filter_expression("attribute_not_exists(#sent_at) AND #created_at < :made_before")
            .expression_attribute_names("#sent_at", column::SENT_AT)
            .expression_attribute_names("#created_at", column::CREATED_AT)
            .expression_attribute_values(":made_before", millis(take.made_before))
            .set_exclusive_start_key(take.after.map(start))
            .limit(limit)
            .send()
            .await
            .map_err(|error| sdk_error("scan the outbox", None, error))?;
        let rows = found.items.unwrap_or_default();
        let entries = rows.iter().filter_map(|row| OutboxEntry::of_row(Ok(columns(row)))).collect();
        Ok(Taken { entries, next: found.last_evaluated_key.as_ref().and_then(place) })
    }

    async fn sent(&self, entry: &OutboxEntry, at: Timestamp) -> Result<(), Error> {
        let Some(unique) = &entry.unique else {
            let deleted = self.client.delete_item().table_name(self.outbox_table());
            let deleted = deleted.set_key(Some(key(entry))).send().await;
            return deleted.map(drop).map_err(|error| sdk_error("delete", None, error));
        };
        // Only now: what is not sent yet must not expire.
        let expires_at = unique.until.millis() / 1000 + KEPT_SECONDS;
        let marked = self
            .client
            .update_item()
            .table_name(self.outbox_table())
            .set_key(Some(key(entry)))
            .update_expression("SET #sent_at = :at, #expires_at = :expires_at")
            .condition_expression("#nonce = :nonce")
            .expression_attribute_names("#sent_at", column::SENT_AT)
            .expression_attribute_names("#nonce", column::NONCE)
            .expression_attribute_names("#expires_at", "expires_at")
            .expression_attribute_values(":at", millis(at))
            .expression_attribute_values(":expires_at", AttributeValue::N(expires_at.to_string()))
            .expression_attribute_values(":nonce", AttributeValue::S(unique.nonce.clone()))
            .send()
            .await;
        match marked {
            Ok(_) => Ok(()),
            // The job has ended already, or a later message has taken the place.
            Err(SdkError::ServiceError(context))
                if matches!(context.err(), UpdateItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(())
            }
            Err(error) => Err(sdk_error("update", None, error)),
        }
    }

    /// Nothing is noted: the stream and the next look at the table bring it again.
    async fn put_back(&self, _entry: &OutboxEntry, _at: Timestamp) -> Result<(), Error> {
        Ok(())
    }

    async fn is_unsent(&self, entry: &OutboxEntry) -> Result<bool, Error> {
        let nonce = entry.unique.as_ref().map(|unique| AttributeValue::S(unique.nonce.clone()));
        let found = self
            .client
            .get_item()
            .table_name(self.outbox_table())
            .set_key(Some(key(entry)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| sdk_error("get", None, error))?;
        Ok(found.item.is_some_and(|row| {
            row.get(column::NONCE) == nonce.as_ref() && !row.contains_key(column::SENT_AT)
        }))
    }

    async fn clear(&self, row: &str, nonce: &str) -> Result<(), Error> {
        let place = Place { order_key: row.to_owned(), event_id: UNIQUE.to_owned() };
        let deleted = self
            .client
            .delete_item()
            .table_name(self.outbox_table())
            .set_key(Some(start(place)))
            .condition_expression("#nonce = :nonce")
            .expression_attribute_names("#nonce", column::NONCE)
            .expression_attribute_values(":nonce", AttributeValue::S(nonce.to_owned()))
            .send()
            .await;
        match deleted {
            Ok(_) => Ok(()),
            Err(SdkError::ServiceError(context))
                if matches!(context.err(), DeleteItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(())
            }
            Err(error) => Err(sdk_error("delete", None, error)),
        }
    }

    async fn add_unique(&self, entry: &OutboxEntry, now: Timestamp) -> Result<bool, Error> {
        let nonce = entry.unique.as_ref().map(|unique| unique.nonce.clone()).unwrap_or_default();
        let mut item: HashMap<_, _> = key(entry);
        item.extend(encode(&entry.value_columns()));
        let put = self
            .client
            .put_item()
            .table_name(self.outbox_table())
            .set_item(Some(item))
            // What is not sent yet is kept, however late: it was promised. The client itself sends
            // this again if an answer is lost, and finds its own row.
            .condition_expression(
                "attribute_not_exists(#order_key) OR #nonce = :nonce \
                 OR (#until <= :now AND attribute_exists(#sent_at))",
            )
            .expression_attribute_names("#order_key", column::ORDER_KEY)
            .expression_attribute_names("#nonce", column::NONCE)
            .expression_attribute_names("#until", column::UNTIL)
            .expression_attribute_names("#sent_at", column::SENT_AT)
            .expression_attribute_values(":nonce", AttributeValue::S(nonce))
            .expression_attribute_values(":now", millis(now))
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(context))
                if matches!(context.err(), PutItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(false)
            }
            Err(error) => Err(sdk_error("put", None, error)),
        }
    }
}
