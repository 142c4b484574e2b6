//! Making the table, for trying things out and for tests. In production the template makes it.

use std::time::Duration;

use aws_sdk_dynamodb::error::{BuildError, SdkError};
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType, TableStatus,
    TimeToLiveSpecification, TimeToLiveStatus,
};

use super::DynamoStore;
use super::error::sdk_error;
use crate::error::{Error, ErrorKind};
use crate::runtime::Clock;
use crate::store::outbox::column;

impl DynamoStore {
    /// Makes the table with its index and TTL, and the table of the outbox with its stream, on
    /// demand, and waits until they are usable, at most a minute each. Answers false if both were
    /// there already; then only a TTL that is off is turned on, so that a set-up which was
    /// interrupted is finished by the next.
    pub async fn create_table(&self, clock: &dyn Clock) -> Result<bool, Error> {
        let made = self.made(&self.table, self.definition(), clock).await?;
        let outbox = self.outbox_table();
        Ok(self.made(&outbox, self.outbox_definition(&outbox), clock).await? || made)
    }

    async fn made(
        &self,
        table: &str,
        definition: Result<CreateTableFluentBuilder, BuildError>,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let request = definition
            .map_err(|error| Error::new(ErrorKind::Config, "create table").with_source(error))?;
        let is_new = match request.send().await {
            Ok(_) => true,
            Err(SdkError::ServiceError(context))
                if matches!(context.err(), CreateTableError::ResourceInUseException(_)) =>
            {
                false
            }
            Err(error) => return Err(sdk_error("create table", None, error)),
        };
        self.wait_until_active(table, clock).await?;
        if is_new || self.is_ttl_off(table).await? {
            self.enable_ttl(table).await?;
        }
        Ok(is_new)
    }

    async fn is_ttl_off(&self, table: &str) -> Result<bool, Error> {
        let described = self
            .client
            .describe_time_to_live()
            .table_name(table)
            .send()
            .await
            .map_err(|error| sdk_error("describe TTL", None, error))?;
        let status = described.time_to_live_description.and_then(|ttl| ttl.time_to_live_status);
        Ok(status.is_none_or(|status| status == TimeToLiveStatus::Disabled))
    }

    async fn enable_ttl(&self, table: &str) -> Result<(), Error> {
        let ttl = TimeToLiveSpecification::builder()
            .attribute_name("expires_at")
            .enabled(true)
            .build()
            .map_err(|error| Error::new(ErrorKind::Config, "enable TTL").with_source(error))?;
        self.client
            .update_time_to_live()
            .table_name(table)
            .time_to_live_specification(ttl)
            .send()
            .await
            .map_err(|error| sdk_error("enable TTL", None, error))?;
        Ok(())
    }

    fn definition(&self) -> Result<CreateTableFluentBuilder, BuildError> {
        let index = GlobalSecondaryIndex::builder()
            .index_name("parked")
            .key_schema(key("parked", KeyType::Hash)?)
            .key_schema(key("updated_at", KeyType::Range)?)
            .projection(Projection::builder().projection_type(ProjectionType::All).build())
            .build()?;
        Ok(self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute("pk", ScalarAttributeType::S)?)
            .attribute_definitions(attribute("parked", ScalarAttributeType::S)?)
            .attribute_definitions(attribute("updated_at", ScalarAttributeType::N)?)
            .key_schema(key("pk", KeyType::Hash)?)
            .global_secondary_indexes(index))
    }

    fn outbox_definition(&self, table: &str) -> Result<CreateTableFluentBuilder, BuildError> {
        // The relay needs no more than the entry itself.
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::NewImage)
            .build()?;
        Ok(self
            .client
            .create_table()
            .table_name(table)
            .billing_mode(BillingMode::PayPerRequest)
            .attribute_definitions(attribute(column::ORDER_KEY, ScalarAttributeType::S)?)
            .attribute_definitions(attribute(column::EVENT_ID, ScalarAttributeType::S)?)
            .key_schema(key(column::ORDER_KEY, KeyType::Hash)?)
            .key_schema(key(column::EVENT_ID, KeyType::Range)?)
            .stream_specification(stream))
    }

    async fn wait_until_active(&self, table: &str, clock: &dyn Clock) -> Result<(), Error> {
        let give_up = clock.now() + Duration::from_secs(60);
        while clock.now() < give_up {
            let described = self.client.describe_table().table_name(table).send().await;
            let described = described.map_err(|error| sdk_error("describe table", None, error))?;
            let status = described.table.and_then(|table| table.table_status);
            if status == Some(TableStatus::Active) {
                return Ok(());
            }
            clock.sleep_until(clock.now() + Duration::from_millis(500)).await;
        }
        Err(Error::new(ErrorKind::StoreUnavailable, "create table")
            .with_detail("the table did not become active within a minute"))
    }
}

fn attribute(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
}
