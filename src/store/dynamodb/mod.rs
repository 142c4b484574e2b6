//! Records in a DynamoDB table: one conditional write a step, and no read.

mod group;
mod item;
mod outbox;
mod partiql;
mod rows;
mod setup;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

use self::group::{Grouped, Groups};
use self::item::{Attributes, Expression};
use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::{BoxError, Error, ErrorKind};
use crate::protocol::{Change, ConditionalWrite, Record, RecordId, Status};

/// A transaction takes a hundred writes, one of them the record's.
const MOST_STAGED: usize = 99;

/// Records in one DynamoDB table (partition key `pk`, index `parked`, TTL on `expires_at`).
///
/// Stages [`RowWrite`](super::RowWrite)s and `TransactWriteItem`s of the same account and Region.
///
/// Commits that become ready at the same moment share a request, each with its own condition and its
/// own outcome; a lone one goes alone, and so does what stages anything. Clones share theirs.
#[derive(Clone)]
pub struct DynamoStore {
    client: Client,
    table: String,
    groups: Option<Arc<Groups>>,
}

impl DynamoStore {
    /// The records in `table`. `sdk` should carry time limits and retries, as
    /// [`sdk::load`](crate::sdk::load) does: the SDK has no time limit of its own.
    pub fn new(sdk: &SdkConfig, table: impl Into<String>) -> Self {
        Self::with_client(Client::new(sdk), table)
    }

    /// The records in `table`, through a client with settings of its own.
    pub fn with_client(client: Client, table: impl Into<String>) -> Self {
        let table = table.into();
        let groups = Some(Arc::new(Groups::new(&client, &table)));
        Self { client, table, groups }
    }

    /// The same, with a request for each commit. Needs no permission for PartiQL.
    #[must_use]
    pub fn ungrouped(self) -> Self {
        Self { groups: None, ..self }
    }

    async fn commit_one(&self, write: &ConditionalWrite) -> Result<Commit, Error> {
        let _turn = match &self.groups {
            None => None,
            Some(groups) => match groups.commit(write).await {
                Grouped::Said(commit) => return commit,
                Grouped::Alone(turn) => turn,
            },
        };
        // A request's future is large, and those that go with others need none.
        Box::pin(self.commit_alone(write)).await
    }

    async fn commit_alone(&self, write: &ConditionalWrite) -> Result<Commit, Error> {
        let old = ReturnValuesOnConditionCheckFailure::AllOld;
        let condition = item::condition(&write.expect);
        let found = match &write.change {
            Change::Create(record) => {
                let sent = self
                    .client
                    .put_item()
                    .table_name(&self.table)
                    .set_item(Some(item::encode(record)))
                    .condition_expression(condition.text)
                    .set_expression_attribute_names(condition.names)
                    .set_expression_attribute_values(condition.values)
                    .return_values_on_condition_check_failure(old)
                    .send()
                    .await;
                match sent {
                    Ok(_) => return Ok(Commit::Applied),
                    Err(SdkError::ServiceError(context)) => match context.into_err() {
                        PutItemError::ConditionalCheckFailedException(failed) => failed.item,
                        error => return Err(refusal("put", &write.id, error)),
                    },
                    Err(error) => return Err(no_answer("put", &write.id, error)),
                }
            }
            Change::Update(fields) => {
                let update = item::update(fields, condition);
                let sent = self
                    .client
                    .update_item()
                    .table_name(&self.table)
                    .key(item::PK, item::pk(&write.id))
                    .update_expression(update.set)
                    .condition_expression(update.condition.text)
                    .set_expression_attribute_names(update.condition.names)
                    .set_expression_attribute_values(update.condition.values)
                    .return_values_on_condition_check_failure(old)
                    .send()
                    .await;
                match sent {
                    Ok(_) => return Ok(Commit::Applied),
                    Err(SdkError::ServiceError(context)) => match context.into_err() {
                        UpdateItemError::ConditionalCheckFailedException(failed) => failed.item,
                        error => return Err(refusal("update", &write.id, error)),
                    },
                    Err(error) => return Err(no_answer("update", &write.id, error)),
                }
            }
        };
        conflict(&write.id, found)
    }

    /// The record and everything staged in one transaction, the record first.
    async fn commit_together(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        // Refused by DynamoDB, it would be tried again.
        if staged.len() > MOST_STAGED {
            let many = staged.len();
            let detail = format!("{many} writes; DynamoDB takes {MOST_STAGED} with the record");
            return Err(Error::new(ErrorKind::Staged, "stage")
                .with_id(&write.id)
                .with_detail(detail));
        }
        let mut items = vec![self.record_item(write)?];
        for staged in staged {
            items.push(rows::item(staged)?);
        }
        let sent = self.client.transact_write_items().set_transact_items(Some(items)).send().await;
        let reasons = match sent {
            Ok(_) => return Ok(Commit::Applied),
            Err(SdkError::ServiceError(context)) => match context.into_err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    cancelled.cancellation_reasons.unwrap_or_default()
                }
                error => return Err(refusal("transact", &write.id, error)),
            },
            Err(error) => return Err(no_answer("transact", &write.id, error)),
        };
        cancelled(&write.id, reasons)
    }

    fn record_item(&self, write: &ConditionalWrite) -> Result<TransactWriteItem, Error> {
        let old = ReturnValuesOnConditionCheckFailure::AllOld;
        let condition = item::condition(&write.expect);
        let built = match &write.change {
            Change::Create(record) => Put::builder()
                .table_name(&self.table)
                .set_item(Some(item::encode(record)))
                .condition_expression(condition.text)
                .set_expression_attribute_names(condition.names)
                .set_expression_attribute_values(condition.values)
                .return_values_on_condition_check_failure(old)
                .build()
                .map(|put| TransactWriteItem::builder().put(put).build()),
            Change::Update(fields) => {
                let update = item::update(fields, condition);
                Update::builder()
                    .table_name(&self.table)
                    .key(item::PK, item::pk(&write.id))
                    .update_expression(update.set)
                    .condition_expression(update.condition.text)
                    .set_expression_attribute_names(update.condition.names)
                    .set_expression_attribute_values(update.condition.values)
                    .return_values_on_condition_check_failure(old)
                    .build()
                    .map(|update| TransactWriteItem::builder().update(update).build())
            }
        };
        built.map_err(|error| {
            Error::new(ErrorKind::StoreRefused, "transact").with_id(&write.id).with_source(error)
        })
    }
}

#[async_trait]
impl Store for DynamoStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        let got = self
            .client
            .get_item()
            .table_name(&self.table)
            .key(item::PK, item::pk(id))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| sdk_error("get", Some(id), error))?;
        got.item.map(|attributes| item::decode(id, &attributes)).transpose()
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        if staged.is_empty() {
            self.commit_one(write).await
        } else {
            Box::pin(self.commit_together(write, staged)).await
        }
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let Expression { text, names, values } = item::parked(parked);
        let found = self
            .client
            .query()
            .table_name(&self.table)
            .index_name("parked")
            .key_condition_expression(text)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_exclusive_start_key(after.map(|cursor| item::encode_cursor(parked, &cursor)))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .send()
            .await
            .map_err(|error| sdk_error("query", None, error))?;
        let records = item::decode_all(found.items)?;
        let next = found.last_evaluated_key.map(|key| item::decode_cursor(&key)).transpose()?;
        Ok(Page { records, next })
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        let found = self
            .client
            .scan()
            .table_name(&self.table)
            // What else is in the table is no record.
            .filter_expression("attribute_exists(claim_id)")
            .set_exclusive_start_key(after.map(item::key_of))
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .send()
            .await
            .map_err(|error| sdk_error("scan", None, error))?;
        let records = item::decode_all(found.items)?;
        let next = found.last_evaluated_key.and_then(|key| key.get(item::PK)?.as_s().ok().cloned());
        Ok(Walk { records, next })
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        rows::item(staged).map(drop)
    }

    fn capabilities(&self) -> Capabilities {
        let outbox = Some(self.outbox_table());
        Capabilities { rows: true, native: &[rows::NATIVE], outbox }
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        Some(self)
    }
}

fn conflict(id: &RecordId, found: Option<Attributes>) -> Result<Commit, Error> {
    // Some emulators answer an empty item where there is none.
    let found = found.filter(|attributes| !attributes.is_empty());
    let record = found.map(|attributes| item::decode(id, &attributes)).transpose()?;
    Ok(Commit::Conflict(record.map(Box::new)))
}

/// What a cancelled transaction says of an item that it has nothing against.
const NOTHING: &str = "None";
const CONDITION: &str = "ConditionalCheckFailed";
/// Reasons that stay.
const FOR_GOOD: [&str; 2] = ["ValidationError", "ItemCollectionSizeLimitExceeded"];

/// Tells a cancelled transaction's causes apart. Reasons come in the order of the items, my own
/// record's first: a duplicate's staged writes fail as well, and mean nothing then.
fn cancelled(id: &RecordId, mut reasons: Vec<CancellationReason>) -> Result<Commit, Error> {
    let codes: Vec<_> = reasons
        .iter()
        .map(|reason| reason.code.clone().unwrap_or_else(|| NOTHING.to_owned()))
        .collect();
    match codes.split_first() {
        Some((own, _)) if own == CONDITION => conflict(id, reasons.swap_remove(0).item),
        Some((own, staged)) if own == NOTHING && staged.iter().any(|code| code == CONDITION) => {
            let index = staged.iter().position(|code| code == CONDITION).unwrap_or_default();
            Ok(Commit::Refused { index })
        }
        // With my own record in other hands just now, what is staged says nothing yet.
        _ => {
            let is_any = |these: &[&str]| codes.iter().any(|code| these.contains(&code.as_str()));
            let kind = if is_any(&FOR_GOOD) {
                ErrorKind::StoreRefused
            } else if is_any(&["TransactionConflict"]) {
                ErrorKind::StoreContended
            } else {
                ErrorKind::StoreUnavailable
            };
            Err(Error::new(kind, "transact")
                .with_id(id)
                .with_detail(format!("the transaction was cancelled: {}", codes.join(", "))))
        }
    }
}

/// Codes that say "later", whichever operation answers them.
const LATER: [&str; 8] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "InternalServerError",
    "ServiceUnavailable",
    "TransactionInProgressException",
    "LimitExceededException",
    "ReplicatedWriteConflictException",
];

fn kind(error: &impl ProvideErrorMetadata) -> ErrorKind {
    match error.code() {
        Some("TransactionConflictException") => ErrorKind::StoreContended,
        Some(code) if !LATER.contains(&code) => ErrorKind::StoreRefused,
        _ => ErrorKind::StoreUnavailable,
    }
}

/// The service answered with an error: certain, but for its own failures.
fn refusal<E>(operation: &'static str, id: &RecordId, error: E) -> Error
where
    E: ProvideErrorMetadata + Into<BoxError>,
{
    advised(Error::new(kind(&error), operation), error.code()).with_id(id).with_source(error)
}

/// Says what to do where that is known.
fn advised(error: Error, code: Option<&str>) -> Error {
    match code {
        Some("ResourceNotFoundException") => error.with_detail(
            "there is no such table here; make it with `onlyonce setup`, or correct ONLYONCE_STORE",
        ),
        _ => error,
    }
}

/// Anything but the service's own word leaves open whether the write landed.
fn no_answer<E>(operation: &'static str, id: &RecordId, error: SdkError<E>) -> Error
where
    E: std::error::Error + Send + Sync + 'static,
{
    Error::new(ErrorKind::StoreUnavailable, operation).with_id(id).with_source(error)
}

fn sdk_error<E>(operation: &'static str, id: Option<&RecordId>, error: SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let made = advised(Error::new(kind(&error), operation), error.code()).with_source(error);
    match id {
        Some(id) => made.with_id(id),
        None => made,
    }
}

impl fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoStore({})", self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::IdempotencyKey;

    fn cancelled_with(codes: &[&str]) -> Result<Commit, ErrorKind> {
        let id = RecordId::new("default", "job", &IdempotencyKey::new("k").unwrap());
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        cancelled(&id, codes.iter().map(reason).collect()).map_err(|error| error.kind())
    }

    #[test]
    fn a_cancelled_transaction_is_told_by_all_its_reasons() {
        let (failed, nothing) = ("ConditionalCheckFailed", "None");
        for (codes, told) in [
            (vec![failed, failed], Ok(Commit::Conflict(None))),
            (vec![nothing, nothing, failed], Ok(Commit::Refused { index: 1 })),
            (vec![nothing, "TransactionConflict", failed], Ok(Commit::Refused { index: 1 })),
            // Whether my record's condition holds is not known.
            (vec!["TransactionConflict", failed], Err(ErrorKind::StoreContended)),
            (vec![nothing, "TransactionConflict"], Err(ErrorKind::StoreContended)),
            (vec!["ThrottlingError", failed], Err(ErrorKind::StoreUnavailable)),
            (vec![nothing, "ProvisionedThroughputExceeded"], Err(ErrorKind::StoreUnavailable)),
            (vec![], Err(ErrorKind::StoreUnavailable)),
            // The record itself is too large, say.
            (vec!["ValidationError", nothing], Err(ErrorKind::StoreRefused)),
            (vec![nothing, "ValidationError"], Err(ErrorKind::StoreRefused)),
            (vec![nothing, "ItemCollectionSizeLimitExceeded"], Err(ErrorKind::StoreRefused)),
        ] {
            assert_eq!(cancelled_with(&codes), told, "{codes:?}");
        }
    }
}
