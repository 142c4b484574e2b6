//! The live settings of a deployment. Each call has the SDK's time limits; what is refused is said
//! to be not known, with the permission that it needs.

mod function;
mod queue;
mod role;
mod sharers;
mod store;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use self::function::{Mapping, Worker};
use super::environment::Environment;
use super::facts::{Deployment, Place, StoreFacts};
use super::known::{Known, Untold};
use super::policy::last;
use crate::config::{Settings, StoreSetting};
use crate::error::BoxError;
use crate::sdk::SdkConfig;

const IN_THE_FUNCTION: &str = "its file is in the function, and not on this machine";

/// What is to be looked at.
pub struct Target<'a> {
    pub function: Option<&'a str>,
    pub queue_url: Option<&'a str>,
}

/// Who is asked.
struct Account<'a> {
    sdk: &'a SdkConfig,
    queues: aws_sdk_sqs::Client,
    functions: aws_sdk_lambda::Client,
    tables: aws_sdk_dynamodb::Client,
    roles: aws_sdk_iam::Client,
}

/// The deployments that serve the target; or what the environment alone says.
pub async fn read(
    sdk: &SdkConfig,
    target: &Target<'_>,
    settings: &Settings,
) -> Result<Vec<Deployment>, BoxError> {
    let account = Account {
        sdk,
        queues: aws_sdk_sqs::Client::new(sdk),
        functions: aws_sdk_lambda::Client::new(sdk),
        tables: aws_sdk_dynamodb::Client::new(sdk),
        roles: aws_sdk_iam::Client::new(sdk),
    };
    match (target.function, target.queue_url) {
        (Some(function), queue_url) => account.of_function(function, queue_url).await,
        (None, Some(url)) => account.of_queue(url, settings).await,
        (None, None) => Ok(vec![account.of_environment(None, settings).await]),
    }
}

impl Account<'_> {
    /// Of a function, with each queue that it serves.
    async fn of_function(
        &self,
        name: &str,
        queue_url: Option<&str>,
    ) -> Result<Vec<Deployment>, BoxError> {
        let worker = self.worker(name).await?;
        let only = match queue_url {
            Some(url) => Some(self.arn_of(url).await?),
            None => None,
        };
        let mappings = match self.mappings(Some(name), None).await {
            Ok(mappings) => mappings,
            Err(why) => {
                let queue = match queue_url {
                    Some(url) => self.queue_at(url).await?,
                    None => Known::Untold(why.clone()),
                };
                return Ok(vec![self.deployment(&worker, queue, Known::Untold(why)).await]);
            }
        };
        let mut found = Vec::new();
        for mapping in
            mappings.into_iter().filter(|it| only.as_ref().is_none_or(|o| it.queue == *o))
        {
            let queue = self.queue(&mapping.queue).await;
            found.push(self.deployment(&worker, queue, Known::Is(mapping)).await);
        }
        if found.is_empty() {
            return Err(format!(
                "function {name} has no event source of {}",
                queue_url.map_or("a queue", |_| "this queue")
            )
            .into());
        }
        Ok(found)
    }

    /// Of a queue: each function that it is served by, or a worker that polls.
    async fn of_queue(&self, url: &str, settings: &Settings) -> Result<Vec<Deployment>, BoxError> {
        let arn = match self.arn_of(url).await {
            Ok(arn) => arn,
            Err(error) if error.downcast_ref::<Refused>().is_some() => {
                let mut found = self.of_environment(None, settings).await;
                found.queue = Known::untold(error.to_string());
                return Ok(vec![found]);
            }
            Err(error) => return Err(error),
        };
        let mappings = self.mappings(None, Some(&arn)).await;
        let mut found = Vec::new();
        for mapping in mappings.iter().flatten() {
            let worker = self.worker(last(&mapping.function)).await?;
            let queue = self.queue_at(url).await?;
            found.push(self.deployment(&worker, queue, Known::Is(mapping.clone())).await);
        }
        if found.is_empty() {
            let mut polls = self.of_environment(Some(url), settings).await;
            if let Err(why) = mappings {
                polls.source = Known::Untold(why.clone());
                polls.function = Known::Untold(why);
            }
            found.push(polls);
        }
        Ok(found)
    }

    /// Of a worker that polls, as far as this environment is its own.
    async fn of_environment(&self, url: Option<&str>, settings: &Settings) -> Deployment {
        let queue = match url {
            Some(url) => {
                self.queue_at(url).await.unwrap_or_else(|why| Known::untold(why.to_string()))
            }
            None => Known::untold("no queue is named: give --queue-url or --function"),
        };
        let redrive = queue.clone().and_then(|queue| queue.redrive);
        Deployment {
            dlq: self.dead_letters(&redrive).await,
            queue,
            source: Known::Absent,
            function: Known::Absent,
            quarantine: Known::from(settings.dlq_url.as_deref().map(place)),
            store: self.store(&settings.store).await,
            role: Known::untold("what a worker may do that is no function is not known here"),
            sharers: Known::untold("workers that are no functions are listed nowhere"),
            ..Deployment::unknown("the environment", "not read")
        }
    }

    async fn deployment(
        &self,
        worker: &Worker,
        queue: Known<super::facts::Queue>,
        mapping: Known<Mapping>,
    ) -> Deployment {
        let Environment { store, dlq_url, .. } = &worker.environment;
        let redrive = queue.clone().and_then(|queue| queue.redrive);
        let store = match store {
            Known::Is(StoreSetting::Sqlite { .. }) => {
                Known::Is(StoreFacts::Sql("sqlite", Known::untold(IN_THE_FUNCTION)))
            }
            Known::Is(setting) => self.store(setting).await,
            Known::Absent => Known::Absent,
            Known::Untold(why) => Known::Untold(why.clone()),
        };
        Deployment {
            dlq: self.dead_letters(&redrive).await,
            queue,
            source: mapping.map(|it| it.source),
            function: worker.function.clone(),
            quarantine: dlq_url.clone().map(|url| place(&url)),
            store,
            role: self.role(&worker.role).await,
            sharers: self.sharers(worker).await,
            ..Deployment::unknown(&worker.name, "not read")
        }
    }
}

/// The queue at a URL.
fn place(url: &str) -> Place {
    Place { name: url.rsplit('/').next().unwrap_or_default().to_owned(), arn: None }
}

/// A look that was refused.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Why an answer did not come.
enum No {
    /// What was asked for is not there.
    NotThere,
    /// Nobody said anything: no network, no credentials.
    Silent(Untold),
    Untold(Untold),
}

/// Reads an error. AWS' words are left out: they name accounts and roles.
fn no<E: ProvideErrorMetadata, R>(permission: &str, error: &SdkError<E, R>) -> No {
    let code = error.code().unwrap_or_default();
    let has = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
    if has(&["NotFound", "NonExistentQueue", "DoesNotExist", "NoSuchEntity"]) {
        return No::NotThere;
    }
    if code.is_empty() {
        return No::Silent(Untold(format!(
            "AWS did not answer {permission}; look at the network, the region and the credentials"
        )));
    }
    let is_refused = has(&["AccessDenied", "Unauthorized", "NotAuthorized", "Forbidden"]);
    No::Untold(Untold(match is_refused {
        true => format!("needs permission {permission}"),
        false => format!("AWS answered {code} to {permission}"),
    }))
}

/// The same, where what is not there is not known either.
fn untold<E: ProvideErrorMetadata, R>(permission: &str, error: &SdkError<E, R>) -> Untold {
    match no(permission, error) {
        No::NotThere => Untold(format!("what {permission} was to show is not there")),
        No::Silent(why) | No::Untold(why) => why,
    }
}
