//! Where a drill takes place: queues and a table that are made for it and removed, or those of a
//! deployment.

use std::sync::Arc;

use aws_sdk_dynamodb::Client as Dynamo;
use aws_sdk_sqs::Client as Sqs;

use super::emulator::{self, Emulator};
use crate::error::BoxError;
use crate::ops::setup::{Queues, queues};
use crate::runtime::SystemClock;
use crate::sdk::{self, SdkConfig};
use crate::store::DynamoStore;

/// So often is a message received, at most: Busy counts as well, and the drill looks for losses by
/// itself.
const MOST_RECEIVES: u32 = 50;

/// Queues and table.
pub(super) struct Venue {
    pub sdk: SdkConfig,
    pub queue_url: String,
    pub dlq_url: String,
    pub table: String,
    pub store: Arc<DynamoStore>,
}

impl Venue {
    /// That of a deployment.
    pub async fn deployed(queue_url: String, dlq_url: String, table: String) -> Self {
        let sdk = sdk::load().await;
        let store = Arc::new(DynamoStore::new(&sdk, &table));
        Self { sdk, queue_url, dlq_url, table, store }
    }
}

/// What was made for a drill here, as far as it was.
#[derive(Default)]
pub(super) struct Made {
    emulator: Option<Emulator>,
    sdk: Option<SdkConfig>,
    queues: Vec<String>,
    table: Option<String>,
}

impl Made {
    /// Makes it; what there is already when it fails is removed by `remove`.
    pub async fn make(&mut self, run: &str, visibility: u32) -> Result<Venue, BoxError> {
        let sdk = match std::env::var_os("AWS_ENDPOINT_URL") {
            Some(_) => sdk::load().await,
            None => {
                let emulator = Emulator::start().await?;
                let sdk = emulator::settings(&emulator.endpoint).await;
                self.emulator = Some(emulator);
                sdk
            }
        };
        self.sdk = Some(sdk.clone());
        let sqs = Sqs::new(&sdk);
        let table = format!("onlyonce-drill-{run}");
        let queues = queues(&sqs, &table, visibility, MOST_RECEIVES, &mut self.queues).await?;
        let store = Arc::new(DynamoStore::new(&sdk, &table));
        self.table = Some(table.clone());
        store.create_table(&SystemClock).await?;
        let Queues { url: queue_url, dlq_url, .. } = queues;
        Ok(Venue { sdk, queue_url, dlq_url, table, store })
    }

    /// The endpoint of the emulator that was started, if one was.
    pub fn endpoint(&self) -> Option<String> {
        self.emulator.as_ref().map(|emulator| emulator.endpoint.clone())
    }

    /// Removes all of it. What cannot be removed is told.
    pub async fn remove(self) {
        if let Some(emulator) = self.emulator {
            // Everything was in it.
            emulator.stop().await;
            return;
        }
        let Some(sdk) = self.sdk else { return };
        let (sqs, dynamo) = (Sqs::new(&sdk), Dynamo::new(&sdk));
        for url in self.queues {
            if sqs.delete_queue().queue_url(&url).send().await.is_err() {
                eprintln!("the queue {url} is left: delete it");
            }
        }
        for table in self.table.iter().flat_map(|it| [it.clone(), format!("{it}-outbox")]) {
            if dynamo.delete_table().table_name(&table).send().await.is_err() {
                eprintln!("the table {table} is left: delete it");
            }
        }
    }
}
