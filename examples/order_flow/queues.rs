//! The queue, and the one for what cannot be run.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use onlyonce::BoxError;
use onlyonce::sdk::SdkConfig;

/// Seconds for which a received message is hidden. It is the time that a worker has for a batch, and
/// so how long a dead worker's claims are believed (and 5 s longer, for clocks that differ): here it
/// is short, so that what a kill has interrupted goes on soon. It must be longer than a job takes.
const VISIBILITY: &str = "5";
/// Deliveries until SQS itself gives up on a message: those to workers that are killed count, and
/// here most are.
const DELIVERIES: u32 = 100;

/// Both are deleted by [`Queues::delete`].
pub struct Queues {
    client: Client,
    pub url: String,
    pub dlq_url: String,
}

impl Queues {
    pub async fn create(sdk: &SdkConfig, name: &str) -> Result<Self, BoxError> {
        let client = Client::new(sdk);
        let made = client.create_queue().queue_name(format!("{name}-dlq")).send().await?;
        let dlq_url = made.queue_url.ok_or("SQS names no URL")?;
        let arn = client.get_queue_attributes().queue_url(&dlq_url);
        let arn = arn.attribute_names(QueueAttributeName::QueueArn).send().await?;
        let arn = arn.attributes().and_then(|all| all.get(&QueueAttributeName::QueueArn));
        let redrive = serde_json::json!({
            "deadLetterTargetArn": arn.ok_or("SQS names no ARN")?,
            "maxReceiveCount": DELIVERIES,
        });
        let made = client
            .create_queue()
            .queue_name(name)
            .attributes(QueueAttributeName::VisibilityTimeout, VISIBILITY)
            .attributes(QueueAttributeName::RedrivePolicy, redrive.to_string())
            .send()
            .await?;
        Ok(Self { client, url: made.queue_url.ok_or("SQS names no URL")?, dlq_url })
    }

    /// How many messages there are, waiting or received, in the queue and in the dead-letter queue.
    pub async fn len(&self) -> Result<(usize, usize), BoxError> {
        Ok((self.len_of(&self.url).await?, self.len_of(&self.dlq_url).await?))
    }

    async fn len_of(&self, url: &str) -> Result<usize, BoxError> {
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let asked = self.client.get_queue_attributes().queue_url(url);
        let told = asked.set_attribute_names(Some(counts.into())).send().await?;
        let told = told.attributes.unwrap_or_default();
        Ok(told.values().filter_map(|count| count.parse::<usize>().ok()).sum())
    }

    pub async fn delete(&self) -> Result<(), BoxError> {
        for url in [&self.url, &self.dlq_url] {
            self.client.delete_queue().queue_url(url).send().await?;
        }
        Ok(())
    }
}
