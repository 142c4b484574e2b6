//! `setup`: the store, and the queues if they are named.

use std::path::Path;
use std::process::ExitCode;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use clap::Args;
use serde_json::json;

use crate::config::{Settings, StoreSetting};
use crate::error::{BoxError, Error, ErrorKind};
use crate::handler::Router;
use crate::runtime::SystemClock;
use crate::sdk;

/// How long the queue keeps a message, and how long the dead-letter queue does: the longest there is.
/// A message's age goes on in there.
const A_WEEK: u32 = 7 * 24 * 3600;
const TWO_WEEKS: u32 = 2 * A_WEEK;
/// Throttles and waits for a busy key count as receives, too.
const MAX_RECEIVES: u32 = 10;

/// What to make besides the store.
#[derive(Args, Clone, Debug)]
pub struct SetupArguments {
    /// A queue, and its dead-letter queue NAME-dead; both FIFO where the name ends in `.fifo`. A queue
    /// that is there is left as it is.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// How long the queue hides a message from others: six times what a batch may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, requires = "queue",
        value_parser = clap::value_parser!(u32).range(1..=43_200))]
    visibility: u32,
}

impl SetupArguments {
    /// Makes what is not there. `jobs` is the jobs file to check first, for a worker that has one.
    pub async fn run(
        &self,
        settings: &Settings,
        jobs: Option<&Path>,
        is_json: bool,
    ) -> Result<ExitCode, BoxError> {
        // A worker in Rust has no jobs file; one that is named is there.
        let checked =
            jobs.filter(|jobs| jobs.exists() || std::env::var_os("ONLYONCE_JOBS").is_some());
        if let Some(jobs) = checked {
            Router::from_jobs_file(jobs)?;
        }
        let made = settings.store.kept()?.set_up(sdk::load(), &SystemClock).await?;
        let queues = match &self.queue {
            Some(name) => {
                let sqs = Client::new(&sdk::load().await);
                Some(queues(&sqs, name, self.visibility, MAX_RECEIVES, &mut Vec::new()).await?)
            }
            None => None,
        };
        if is_json {
            let mut told = json!({ "jobs": checked, "table_made": made });
            if let (Some(queues), Some(told)) = (&queues, told.as_object_mut()) {
                told.insert("queue_made".to_owned(), queues.is_new.into());
                told.insert("queue_url".to_owned(), queues.url.clone().into());
                told.insert("dlq_url".to_owned(), queues.dlq_url.clone().into());
            }
            println!("{told}");
        } else {
            match (checked, jobs) {
                (Some(jobs), _) => println!("jobs file {} is fine", jobs.display()),
                (None, Some(jobs)) => {
                    println!("there is no {} here, and none was checked", jobs.display());
                }
                (None, None) => {}
            }
            println!("{}", tell_store(&settings.store, made));
            if let Some(Queues { is_new, url, dlq_url }) = queues {
                let made = if is_new { "is made" } else { "was there already" };
                println!("the queue {made}; for the worker and for this command:");
                println!("  export ONLYONCE_QUEUE_URL={url}");
                println!("  export ONLYONCE_DLQ_URL={dlq_url}");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tell_store(store: &StoreSetting, made: bool) -> &'static str {
    match (store, made) {
        (StoreSetting::Redis(_), _) => "Redis answers",
        (_, true) => "the table is made",
        (_, false) => "the table was there already",
    }
}

/// A queue and its dead-letter queue.
pub(super) struct Queues {
    is_new: bool,
    pub url: String,
    pub dlq_url: String,
}

/// The dead-letter queue first: whoever sees the queue sees its redrive policy. `found` has the URL of
/// each as soon as it is there.
pub(super) async fn queues(
    sqs: &Client,
    name: &str,
    visibility: u32,
    max_receives: u32,
    found: &mut Vec<String>,
) -> Result<Queues, Error> {
    let (stem, fifo) = name.strip_suffix(".fifo").map_or((name, ""), |stem| (stem, ".fifo"));
    let keeps = |time: u32| (QueueAttributeName::MessageRetentionPeriod, time.to_string());
    let (dlq_url, _) = queue(sqs, &format!("{stem}-dead{fifo}"), vec![keeps(TWO_WEEKS)]).await?;
    found.push(dlq_url.clone());
    let arn = QueueAttributeName::QueueArn;
    let asked = sqs.get_queue_attributes().queue_url(&dlq_url).attribute_names(arn.clone());
    let answer = asked.send().await.map_err(|error| fault(name, error))?;
    let dlq_arn = answer.attributes.and_then(|mut attributes| attributes.remove(&arn));
    let redrive = json!({ "deadLetterTargetArn": dlq_arn, "maxReceiveCount": max_receives });
    let attributes = vec![
        keeps(A_WEEK),
        (QueueAttributeName::VisibilityTimeout, visibility.to_string()),
        (QueueAttributeName::RedrivePolicy, redrive.to_string()),
    ];
    let (url, is_new) = queue(sqs, name, attributes).await?;
    found.push(url.clone());
    Ok(Queues { is_new, url, dlq_url })
}

/// Its URL, and whether it was made now.
async fn queue(
    sqs: &Client,
    name: &str,
    mut attributes: Vec<(QueueAttributeName, String)>,
) -> Result<(String, bool), Error> {
    match sqs.get_queue_url().queue_name(name).send().await {
        Ok(found) => return Ok((found.queue_url.unwrap_or_default(), false)),
        Err(error) => match error.as_service_error() {
            Some(why) if why.is_queue_does_not_exist() => {}
            _ => return Err(fault(name, error)),
        },
    }
    if name.ends_with(".fifo") {
        attributes.push((QueueAttributeName::FifoQueue, "true".to_owned()));
    }
    let create = sqs.create_queue().queue_name(name);
    let create = create.set_attributes(Some(attributes.into_iter().collect()));
    let made = create.send().await.map_err(|error| fault(name, error))?;
    Ok((made.queue_url.unwrap_or_default(), true))
}

fn fault(name: &str, error: impl Into<BoxError>) -> Error {
    Error::new(ErrorKind::Queue, "make the queue").with_detail(name).with_source(error)
}
