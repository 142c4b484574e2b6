//! A queue of a test's own, and a worker that empties it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use onlyonce::front::{Poll, SqsQueue};
use onlyonce::sdk::{self, SdkConfig};
use onlyonce::store::MemoryStore;
use onlyonce::{Context, HandlerError, Router, Worker};
use serde_json::Value;

pub struct Queue {
    pub sdk: SdkConfig,
    pub client: Client,
    pub url: String,
}

impl Queue {
    pub async fn new() -> Self {
        let sdk = sdk::load().await;
        let client = Client::new(&sdk);
        let name = format!("cli-{:016x}", fastrand::Rng::new().u64(..));
        // A copy that comes while the first one runs waits for the end of its lease.
        let create = client.create_queue().queue_name(name);
        let create = create.attributes(QueueAttributeName::VisibilityTimeout, "3");
        let url = create.send().await.unwrap().queue_url.unwrap();
        Self { sdk, client, url }
    }

    /// How many messages there are, waiting or being served.
    pub async fn len(&self) -> usize {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let ask = self.client.get_queue_attributes().queue_url(&self.url);
        let counts = ask.set_attribute_names(Some(names.to_vec())).send().await.unwrap();
        counts.attributes.unwrap().values().map(|count| count.parse::<usize>().unwrap()).sum()
    }

    /// Serves the queue until it is empty; answers the payloads that `job` ran with.
    pub async fn served(&self, job: &str) -> Vec<Value> {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let seen = ran.clone();
        let handler = move |payload: Value, _: Context| {
            seen.lock().unwrap().push(payload);
            async { Ok::<_, HandlerError>(()) }
        };
        let worker = Worker::builder(MemoryStore::new())
            .skew(Duration::from_secs(1))
            .build(Router::new().job(job, handler))
            .unwrap();
        let poll = Poll::open(&self.sdk, &self.url).await.unwrap();
        let queue = SqsQueue::new(&self.sdk).queue_url(Some(self.url.clone()));
        let (stop, told) = tokio::sync::watch::channel(false);
        let until_empty = async {
            while self.len().await > 0 {}
            stop.send(true).unwrap();
        };
        let both = async { tokio::join!(poll.serve(&worker, &queue, told), until_empty) };
        let (served, ()) =
            tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is emptied");
        served.unwrap();
        let ran = ran.lock().unwrap();
        ran.clone()
    }
}
