//! From `ONLYONCE_STORE` to a store.

use std::sync::Arc;

use super::StoreSetting;
use crate::error::{Error, ErrorKind};
use crate::runtime::Clock;
use crate::sdk::SdkConfig;
#[cfg(feature = "postgres")]
use crate::store::PostgresStore;
#[cfg(feature = "redis")]
use crate::store::RedisStore;
#[cfg(feature = "sqlite")]
use crate::store::SqliteStore;
use crate::store::{DynamoStore, MemoryStore, Store};

impl StoreSetting {
    /// This, unless it is gone by the time anybody else looks.
    pub fn kept(&self) -> Result<&Self, Error> {
        match self {
            Self::Memory => Err(Error::new(ErrorKind::Config, "open the store").with_detail(
                "memory: is gone with its process; set ONLYONCE_STORE to dynamodb://TABLE, \
                 sqlite:PATH, redis://HOST or postgres://HOST/DATABASE",
            )),
            store => Ok(store),
        }
    }

    /// Opens the store, which must be there: see [`set_up`](Self::set_up). `sdk` is awaited only
    /// where the store is AWS's: looking for a region and credentials takes seconds where there
    /// are none.
    pub async fn open(
        &self,
        sdk: impl Future<Output = SdkConfig>,
    ) -> Result<Arc<dyn Store>, Error> {
        Ok(match self {
            Self::DynamoDb { table } => Arc::new(DynamoStore::new(&sdk.await, table)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path } => Arc::new(SqliteStore::open_existing(path).await?),
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite { .. } => return Err(without("sqlite:", "sqlite")),
            #[cfg(feature = "redis")]
            Self::Redis(url) => Arc::new(RedisStore::open(url.reveal())?),
            #[cfg(not(feature = "redis"))]
            Self::Redis(_) => return Err(without("redis://", "redis")),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Arc::new(PostgresStore::open_existing(url.reveal()).await?),
            #[cfg(not(feature = "postgres"))]
            Self::Postgres(_) => return Err(without("postgres://", "postgres")),
            Self::Memory => Arc::new(MemoryStore::new()),
        })
    }

    /// Makes what [`open`](Self::open) needs: the table, or the file with the table. Answers false
    /// if it was there already.
    pub async fn set_up(
        &self,
        sdk: impl Future<Output = SdkConfig>,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        match self {
            Self::DynamoDb { table } => {
                DynamoStore::new(&sdk.await, table).create_table(clock).await
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite { path } => SqliteStore::create(path).await,
            #[cfg(not(feature = "sqlite"))]
            Self::Sqlite { .. } => Err(without("sqlite:", "sqlite")),
            #[cfg(feature = "redis")]
            Self::Redis(url) => {
                // There is nothing to make, and something to see.
                for risk in RedisStore::open(url.reveal())?.check().await? {
                    tracing::warn!("{risk}");
                }
                Ok(false)
            }
            #[cfg(not(feature = "redis"))]
            Self::Redis(_) => Err(without("redis://", "redis")),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => PostgresStore::create(url.reveal()).await,
            #[cfg(not(feature = "postgres"))]
            Self::Postgres(_) => Err(without("postgres://", "postgres")),
            Self::Memory => Ok(false),
        }
    }
}

#[cfg(not(all(feature = "sqlite", feature = "redis", feature = "postgres")))]
fn without(scheme: &str, feature: &str) -> Error {
    Error::new(ErrorKind::Config, "open the store").with_detail(format!(
        "ONLYONCE_STORE says {scheme}, but this program was built without its feature `{feature}`"
    ))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::runtime::SystemClock;

    /// Awaiting it would never end.
    fn no_sdk() -> impl Future<Output = SdkConfig> {
        pending()
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_file_is_opened_once_it_is_set_up_and_without_aws() {
        let name = format!("onlyonce-{:016x}", fastrand::Rng::new().u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let setting = StoreSetting::Sqlite { path: folder.join("jobs.db") };
        let missing = setting.open(no_sdk()).await.err().unwrap();
        let made = setting.set_up(no_sdk(), &SystemClock).await;
        let again = setting.set_up(no_sdk(), &SystemClock).await;
        let opened = setting.open(no_sdk()).await.map(drop);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(missing.kind(), ErrorKind::StoreRefused);
        assert!(missing.to_string().contains("onlyonce setup"), "{missing}");
        assert_eq!((made.unwrap(), again.unwrap()), (true, false));
        opened.unwrap();
    }

    #[cfg(not(feature = "sqlite"))]
    #[tokio::test]
    async fn a_store_that_is_not_built_in_is_named() {
        let setting = StoreSetting::Sqlite { path: "jobs.db".into() };
        let opened = setting.open(no_sdk()).await.err().unwrap();
        let made = setting.set_up(no_sdk(), &SystemClock).await.err().unwrap();
        for error in [opened, made] {
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("feature `sqlite`"), "{error}");
        }
    }
}
