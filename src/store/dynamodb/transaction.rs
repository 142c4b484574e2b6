//! One commit with everything staged, in a transaction.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    CancellationReason, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

use super::error::{no_answer, refusal};
use super::{DynamoStore, conflict, item, rows};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Change, ConditionalWrite, RecordId};
use crate::store::{Commit, StagedWrite};

/// A transaction takes a hundred writes, one of them the record's.
const MOST_STAGED: usize = 99;

impl DynamoStore {
    /// The record and everything staged in one transaction, the record first.
    pub(super) async fn commit_together(
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
