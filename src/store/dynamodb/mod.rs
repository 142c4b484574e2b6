//! Records in a DynamoDB table: one conditional write a step, and no read.

mod alone;
mod error;
mod group;
mod item;
mod outbox;
mod partiql;
mod rows;
mod setup;
mod transaction;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;

use self::error::sdk_error;
use self::group::{Grouped, Groups};
use self::item::{Attributes, Expression};
use super::{Capabilities, Commit, Cursor, Outbox, Page, StagedWrite, Store, Walk};
use crate::error::Error;
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};

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

/// A condition that did not hold, and the record it met.
fn conflict(id: &RecordId, found: Option<Attributes>) -> Result<Commit, Error> {
    // Some emulators answer an empty item where there is none.
    let found = found.filter(|attributes| !attributes.is_empty());
    let record = found.map(|attributes| item::decode(id, &attributes)).transpose()?;
    Ok(Commit::Conflict(record.map(Box::new)))
}

impl fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynamoStore({})", self.table)
    }
}
