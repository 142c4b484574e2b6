//! One commit in a request of its own.

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;

use super::error::{no_answer, refusal};
use super::{DynamoStore, conflict, item};
use crate::error::Error;
use crate::protocol::{Change, ConditionalWrite};
use crate::store::Commit;

impl DynamoStore {
    pub(super) async fn commit_alone(&self, write: &ConditionalWrite) -> Result<Commit, Error> {
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
}
