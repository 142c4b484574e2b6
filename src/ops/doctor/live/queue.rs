//! A queue's attributes.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::Value;

use super::{Account, No, Refused, no};
use crate::error::BoxError;
use crate::ops::doctor::facts::{DeadLetters, Place, Queue, Redrive};
use crate::ops::doctor::known::{Known, Untold};
use crate::ops::doctor::policy::last;

const ASKED: &str = "sqs:GetQueueAttributes";

type Attributes = HashMap<QueueAttributeName, String>;

impl Account<'_> {
    /// The ARN of the queue at `url`; an error if there is none.
    pub async fn arn_of(&self, url: &str) -> Result<String, BoxError> {
        match self.attributes(url).await {
            Ok(attributes) => {
                Ok(text(&attributes, QueueAttributeName::QueueArn).unwrap_or_default())
            }
            Err(No::NotThere) => Err(format!("there is no queue {url}").into()),
            Err(No::Silent(Untold(why))) => Err(why.into()),
            Err(No::Untold(Untold(why))) => Err(Refused(why).into()),
        }
    }

    /// The queue at `url`; an error if there is none.
    pub async fn queue_at(&self, url: &str) -> Result<Known<Queue>, BoxError> {
        match self.attributes(url).await {
            Ok(attributes) => {
                let arn = text(&attributes, QueueAttributeName::QueueArn).unwrap_or_default();
                Ok(Known::Is(queue(&arn, &attributes)))
            }
            Err(No::NotThere) => Err(format!("there is no queue {url}").into()),
            Err(No::Silent(Untold(why))) => Err(why.into()),
            Err(No::Untold(why)) => Ok(Known::Untold(why)),
        }
    }

    /// The queue of an ARN.
    pub async fn queue(&self, arn: &str) -> Known<Queue> {
        match self.attributes_of(arn).await {
            Ok(attributes) => Known::Is(queue(arn, &attributes)),
            Err(No::NotThere) => Known::untold(format!("queue {} is not there", last(arn))),
            Err(No::Silent(why) | No::Untold(why)) => Known::Untold(why),
        }
    }

    /// Where a redrive policy leads.
    pub async fn dead_letters(&self, redrive: &Known<Redrive>) -> Known<DeadLetters> {
        let redrive = match redrive {
            Known::Is(redrive) => redrive,
            Known::Absent => return Known::Absent,
            Known::Untold(why) => return Known::Untold(why.clone()),
        };
        let arn = redrive.target.arn.as_deref().unwrap_or_default();
        match self.attributes_of(arn).await {
            Ok(attributes) => Known::Is(DeadLetters {
                is_fifo: Known::Is(arn.ends_with(".fifo")),
                retention: seconds(&attributes, QueueAttributeName::MessageRetentionPeriod),
            }),
            Err(No::NotThere) => Known::Absent,
            Err(No::Silent(why) | No::Untold(why)) => Known::Untold(why),
        }
    }

    async fn attributes_of(&self, arn: &str) -> Result<Attributes, No> {
        let ask = self.queues.get_queue_url().queue_name(last(arn));
        let ask = ask.set_queue_owner_aws_account_id(arn.split(':').nth(4).map(str::to_owned));
        let found = ask.send().await.map_err(|error| no("sqs:GetQueueUrl", &error))?;
        self.attributes(found.queue_url().unwrap_or_default()).await
    }

    async fn attributes(&self, url: &str) -> Result<Attributes, No> {
        let ask = self.queues.get_queue_attributes().queue_url(url);
        let ask = ask.attribute_names(QueueAttributeName::All);
        let answer = ask.send().await.map_err(|error| no(ASKED, &error))?;
        Ok(answer.attributes.unwrap_or_default())
    }
}

fn queue(arn: &str, attributes: &Attributes) -> Queue {
    let policy = text(attributes, QueueAttributeName::RedrivePolicy);
    let policy = policy.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let redrive = policy.map(|policy| {
        let target = policy.get("deadLetterTargetArn").and_then(Value::as_str).unwrap_or_default();
        // A number, or a text of one: AWS gives what was set.
        let count = policy
            .get("maxReceiveCount")
            .map(|it| it.as_str().map_or(it.to_string(), str::to_owned));
        let count = count.and_then(|count| count.parse().ok());
        Redrive { target: place(target), max_receive: Known::from(count) }
    });
    Queue {
        place: place(arn),
        is_fifo: Known::Is(arn.ends_with(".fifo")),
        visibility: seconds(attributes, QueueAttributeName::VisibilityTimeout),
        retention: seconds(attributes, QueueAttributeName::MessageRetentionPeriod),
        redrive: Known::from(redrive),
        key: text(attributes, QueueAttributeName::KmsMasterKeyId)
            .and_then(|it| Place::key(&it))
            .into(),
    }
}

fn place(arn: &str) -> Place {
    Place { name: last(arn).to_owned(), arn: Some(arn.to_owned()) }
}

fn text(attributes: &Attributes, name: QueueAttributeName) -> Option<String> {
    attributes.get(&name).cloned()
}

fn seconds(attributes: &Attributes, name: QueueAttributeName) -> Known<Duration> {
    let told = text(attributes, name.clone()).and_then(|text| text.parse().ok());
    let unsaid = || Known::untold(format!("AWS did not say {}", name.as_str()));
    told.map_or_else(unsaid, |seconds| Known::Is(Duration::from_secs(seconds)))
}
