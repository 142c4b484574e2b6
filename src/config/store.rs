//! The store that the environment names.

use std::sync::Arc;

use aws_config::SdkConfig;

use super::StoreSetting;
use crate::error::Error;
use crate::store::{DynamoStore, MemoryStore, Store};

/// Opens the store of these settings.
pub async fn open_store(setting: &StoreSetting, sdk: &SdkConfig) -> Result<Arc<dyn Store>, Error> {
    Ok(match setting {
        StoreSetting::DynamoDb { table } => Arc::new(DynamoStore::new(sdk, table)),
        StoreSetting::Memory => Arc::new(MemoryStore::new()),
    })
}
