//! The ledger: rows of the claims table that no worker ever changes. Each call of an effect is a row
//! of its own, so that a second one is there to be counted.
//!
//! Its items' keys begin with `onlyonce.drill/`, which no digest does, and they expire by themselves.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

use super::row::Row;
use super::scenario::DrillKey;
use crate::error::{Error, ErrorKind};
use crate::protocol::EpochSeconds;
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::sdk::SdkConfig;
use crate::store::StagedWrite;

/// For how long its rows stay.
const KEPT: Duration = Duration::from_secs(2 * 24 * 3600);
/// Rows of one key at most: a worker that goes round in circles fills no table.
pub(super) const MOST_ROWS: usize = 400;

/// The ledger in one table.
pub(crate) struct Ledger {
    pub(super) client: Client,
    pub(super) table: String,
    /// How many rows each key is known to have: the next one is tried there first.
    known: Mutex<HashMap<DrillKey, usize>>,
}

/// What an item holds, in one attribute.
pub(super) const HELD: &str = "held";

impl Ledger {
    pub fn new(sdk: &SdkConfig, table: &str) -> Self {
        Self { client: Client::new(sdk), table: table.to_owned(), known: Mutex::default() }
    }

    /// Adds a row at the end of its key's.
    pub async fn append(&self, key: &DrillKey, row: &Row) -> Result<(), Error> {
        let held = serde_json::to_string(row)
            .map_err(|error| Error::new(ErrorKind::Record, "ledger").with_source(error))?;
        // Of two that write at once, one goes one further.
        let from = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        for n in from.unwrap_or_default()..MOST_ROWS {
            if self.put(&row_pk(key, n), &held).await? {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() > MOST_ROWS * 100 {
                    known.clear();
                }
                known.insert(key.clone(), n + 1);
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::StoreRefused, "ledger").with_detail("a key has too many rows"))
    }

    /// Whether this is the first to say so of a key; nobody else is told that it is.
    pub async fn first(&self, key: &DrillKey, what: &str) -> Result<bool, Error> {
        self.put(&format!("{}/{what}", pk(key)), what).await
    }

    /// What stands for a provider that honours keys: true if it did something, false if it knew the
    /// key.
    pub async fn accept(&self, key: &DrillKey, effect_key: &str) -> Result<bool, Error> {
        self.put(&provider_pk(key, effect_key), effect_key).await
    }

    /// Whether its fault is mended: a write that lands only on what is there, as workers may write
    /// and not read.
    pub async fn is_mended(&self, key: &DrillKey) -> Result<bool, Error> {
        let put = self.client.put_item().table_name(&self.table);
        let sent = put
            .item("pk", AttributeValue::S(mended_pk(key)))
            .item("expires_at", expiry())
            .condition_expression("attribute_exists(pk)")
            .send()
            .await;
        match sent {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(context))
                if matches!(context.err(), PutItemError::ConditionalCheckFailedException(_)) =>
            {
                Ok(false)
            }
            Err(error) => Err(Error::new(ErrorKind::StoreUnavailable, "ledger").with_source(error)),
        }
    }

    /// Mends it.
    #[cfg(feature = "cli")]
    pub async fn mend(&self, key: &DrillKey) -> Result<(), Error> {
        self.put(&mended_pk(key), "mended").await.map(drop)
    }

    /// A write for the completing transaction: it counts how often it was done, so that a second
    /// time shows and hides behind no condition.
    pub fn counted(&self, key: &DrillKey) -> Result<StagedWrite, Error> {
        let update = Update::builder()
            .table_name(&self.table)
            .key("pk", AttributeValue::S(staged_pk(key)))
            .update_expression("SET expires_at = :until ADD done_times :one")
            .expression_attribute_values(":until", expiry())
            .expression_attribute_values(":one", AttributeValue::N("1".to_owned()))
            .build()
            .map_err(|error| Error::new(ErrorKind::Staged, "ledger").with_source(error))?;
        Ok(TransactWriteItem::builder().update(update).build().into())
    }

    /// Puts an item that is not there yet. False if another's is there; one's own, whose answer was
    /// lost on the way, is known by its id.
    async fn put(&self, pk: &str, held: &str) -> Result<bool, Error> {
        let id = OsEntropy.claim_id();
        let put = self.client.put_item().table_name(&self.table);
        let sent = put
            .item("pk", AttributeValue::S(pk.to_owned()))
            .item("id", AttributeValue::S(id.as_str().to_owned()))
            .item(HELD, AttributeValue::S(held.to_owned()))
            .item("expires_at", expiry())
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let found = match sent {
            Ok(_) => return Ok(true),
            Err(SdkError::ServiceError(context)) => match context.into_err() {
                PutItemError::ConditionalCheckFailedException(failed) => failed.item,
                error => {
                    return Err(
                        Error::new(ErrorKind::StoreUnavailable, "ledger").with_source(error)
                    );
                }
            },
            Err(error) => {
                return Err(Error::new(ErrorKind::StoreUnavailable, "ledger").with_source(error));
            }
        };
        let found = found.and_then(|mut item| item.remove("id"));
        Ok(found == Some(AttributeValue::S(id.as_str().to_owned())))
    }
}

fn expiry() -> AttributeValue {
    let at = EpochSeconds::at_or_after(SystemClock.now() + KEPT);
    AttributeValue::N(at.secs().to_string())
}

fn pk(key: &DrillKey) -> String {
    format!("{}/{key}", super::JOB)
}

pub(super) fn row_pk(key: &DrillKey, n: usize) -> String {
    format!("{}/row/{n}", pk(key))
}

pub(super) fn provider_pk(key: &DrillKey, effect_key: &str) -> String {
    format!("{}/provider/{effect_key}", pk(key))
}

pub(super) fn staged_pk(key: &DrillKey) -> String {
    format!("{}/staged", pk(key))
}

fn mended_pk(key: &DrillKey) -> String {
    format!("{}/mended", pk(key))
}
