//! Where records live.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, PointInTimeRecoveryStatus, TimeToLiveStatus,
};

use super::{Account, No, no, untold};
use crate::config::StoreSetting;
use crate::error::{Error, ErrorKind};
use crate::ops::doctor::facts::{Index, Key, Place, StoreFacts, Table};
use crate::ops::doctor::known::Known;
use crate::store::RedisStore;

impl Account<'_> {
    /// What is known of a store.
    pub async fn store(&self, setting: &StoreSetting) -> Known<StoreFacts> {
        Known::Is(match setting {
            StoreSetting::DynamoDb { table } => self.table(table).await,
            StoreSetting::Redis(url) => {
                let keeping = match RedisStore::open(url.reveal()) {
                    Ok(store) => store.keeping().await,
                    Err(error) => Err(error),
                };
                StoreFacts::Redis(keeping.map_or_else(unanswered, Known::Is))
            }
            StoreSetting::Postgres(_) => StoreFacts::Sql("postgres", self.schema(setting).await),
            StoreSetting::Sqlite { .. } => StoreFacts::Sql("sqlite", self.schema(setting).await),
            StoreSetting::Memory => StoreFacts::Memory,
        })
    }

    /// What is wrong with the schema; absent where nothing is.
    async fn schema(&self, setting: &StoreSetting) -> Known<String> {
        match setting.open(std::future::ready(self.sdk.clone())).await {
            Ok(_) => Known::Absent,
            Err(error) if error.kind() == ErrorKind::StoreRefused => Known::Is(error.to_string()),
            Err(error) => unanswered(error),
        }
    }

    async fn table(&self, name: &str) -> StoreFacts {
        let place = Place { name: name.to_owned(), arn: None };
        let found = match self.tables.describe_table().table_name(name).send().await {
            Ok(found) => found,
            Err(error) => {
                let known = match no("dynamodb:DescribeTable", &error) {
                    No::NotThere => Known::Absent,
                    No::Silent(why) | No::Untold(why) => Known::Untold(why),
                };
                return StoreFacts::DynamoDb(place, known);
            }
        };
        let Some(table) = found.table else {
            return StoreFacts::DynamoDb(place, Known::untold("AWS did not describe the table"));
        };
        let kinds = table.attribute_definitions();
        let indexes = table.global_secondary_indexes().iter();
        let mut parked = indexes.filter(|index| index.index_name() == Some("parked"));
        let parked = parked.next().map(|index| Index {
            key: Known::Is(keys(index.key_schema(), kinds)),
            projection: index
                .projection()
                .and_then(|it| it.projection_type())
                .map(|it| it.as_str().to_owned())
                .into(),
        });
        let replicas = table.replicas().iter().filter_map(|it| it.region_name());
        let facts = Table {
            key: Known::Is(keys(table.key_schema(), kinds)),
            parked: parked.into(),
            ttl: self.ttl(name).await,
            is_restorable: self.is_restorable(name).await,
            replicas: Known::Is(replicas.map(str::to_owned).collect()),
        };
        StoreFacts::DynamoDb(Place { arn: table.table_arn.clone(), ..place }, Known::Is(facts))
    }

    async fn ttl(&self, table: &str) -> Known<String> {
        let described = match self.tables.describe_time_to_live().table_name(table).send().await {
            Ok(found) => found.time_to_live_description,
            Err(error) => return Known::Untold(untold("dynamodb:DescribeTimeToLive", &error)),
        };
        let on = described.filter(|ttl| {
            use TimeToLiveStatus::{Enabled, Enabling};
            matches!(ttl.time_to_live_status(), Some(Enabled | Enabling))
        });
        on.map(|ttl| ttl.attribute_name.unwrap_or_default()).into()
    }

    async fn is_restorable(&self, table: &str) -> Known<bool> {
        let ask = self.tables.describe_continuous_backups().table_name(table);
        match ask.send().await {
            Ok(found) => {
                let described = found.continuous_backups_description;
                let status = described.and_then(|it| it.point_in_time_recovery_description);
                let status = status.and_then(|it| it.point_in_time_recovery_status);
                Known::Is(status == Some(PointInTimeRecoveryStatus::Enabled))
            }
            Err(error) => Known::Untold(untold("dynamodb:DescribeContinuousBackups", &error)),
        }
    }
}

/// A store says of itself what may be shown.
fn unanswered<T>(error: Error) -> Known<T> {
    Known::untold(error.to_string())
}

fn keys(schema: &[KeySchemaElement], kinds: &[AttributeDefinition]) -> Vec<Key> {
    let kind = |name: &str| {
        let found = kinds.iter().find(|it| it.attribute_name() == name);
        found.map_or("?", |it| it.attribute_type().as_str())
    };
    let key = |it: &KeySchemaElement| {
        Key::new(it.attribute_name(), it.key_type().as_str(), kind(it.attribute_name()))
    };
    schema.iter().map(key).collect()
}
