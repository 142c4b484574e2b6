//! A function's settings, and the event sources that lead to it.

use std::time::Duration;

use aws_sdk_lambda::types::{
    EnvironmentResponse, EventSourceMappingConfiguration, FunctionResponseType,
};

use super::{Account, No, no, untold};
use crate::error::BoxError;
use crate::ops::doctor::environment::Environment;
use crate::ops::doctor::facts::{Function, Source};
use crate::ops::doctor::known::{Known, Untold};

/// How many pages of event sources are read at most, a hundred each.
pub(super) const PAGES: usize = 20;

/// A function that runs jobs.
pub(super) struct Worker {
    pub name: String,
    pub function: Known<Function>,
    pub environment: Environment,
    /// The role's ARN.
    pub role: Known<String>,
    /// A digest of its code.
    pub code: Known<String>,
}

/// An event source of a queue.
#[derive(Clone)]
pub(super) struct Mapping {
    /// The queue's ARN.
    pub queue: String,
    /// The function's ARN.
    pub function: String,
    pub source: Source,
}

/// What the variables of a function say.
pub(super) fn environment(response: Option<&EnvironmentResponse>) -> Environment {
    let failed = response.is_some_and(|it| it.error().is_some());
    let variables = response.and_then(|it| it.variables());
    Environment::read(|name| match variables.and_then(|it| it.get(name)) {
        Some(value) => Known::Is(value.clone()),
        None if failed => Known::untold("needs permission kms:Decrypt on the function's key"),
        None => Known::Absent,
    })
}

impl Account<'_> {
    /// The function; an error if there is none.
    pub async fn worker(&self, name: &str) -> Result<Worker, BoxError> {
        const ASKED: &str = "lambda:GetFunctionConfiguration";
        let ask = self.functions.get_function_configuration().function_name(name);
        let found = match ask.send().await {
            Ok(found) => found,
            Err(error) => match no(ASKED, &error) {
                No::NotThere => return Err(format!("there is no function {name}").into()),
                No::Silent(Untold(why)) => return Err(why.into()),
                No::Untold(why) => return Ok(Worker::untold(name, why)),
            },
        };
        let timeout = found.timeout().and_then(|seconds| u64::try_from(seconds).ok());
        let environment = environment(found.environment());
        let function = Function {
            timeout: timeout.map(Duration::from_secs).into(),
            reserved: self.reserved(name).await,
            fault: environment.fault.clone(),
        };
        Ok(Worker {
            name: found.function_name().unwrap_or(name).to_owned(),
            function: Known::Is(function),
            environment,
            role: found.role().map(str::to_owned).into(),
            code: found.code_sha256().map(str::to_owned).into(),
        })
    }

    async fn reserved(&self, name: &str) -> Known<u64> {
        let ask = self.functions.get_function_concurrency().function_name(name);
        match ask.send().await {
            Ok(found) => {
                found.reserved_concurrent_executions().and_then(|n| u64::try_from(n).ok()).into()
            }
            Err(error) => Known::Untold(untold("lambda:GetFunctionConcurrency", &error)),
        }
    }

    /// The event sources of queues: of one function, of one queue, or all of them.
    pub async fn mappings(
        &self,
        function: Option<&str>,
        queue: Option<&str>,
    ) -> Result<Vec<Mapping>, Untold> {
        let mut found = Vec::new();
        let mut marker = None;
        for _ in 0..PAGES {
            let ask = self.functions.list_event_source_mappings();
            let ask = ask.set_function_name(function.map(str::to_owned));
            let ask = ask.set_event_source_arn(queue.map(str::to_owned)).set_marker(marker);
            let page = ask.send().await;
            let page = page.map_err(|error| untold("lambda:ListEventSourceMappings", &error))?;
            found.extend(page.event_source_mappings().iter().filter_map(mapping));
            marker = page.next_marker;
            if marker.as_ref().is_none_or(String::is_empty) {
                break;
            }
        }
        Ok(found)
    }
}

impl Worker {
    fn untold(name: &str, why: Untold) -> Self {
        Self {
            name: name.to_owned(),
            function: Known::Untold(why.clone()),
            environment: Environment::read(|_| Known::Untold(why.clone())),
            role: Known::Untold(why.clone()),
            code: Known::Untold(why),
        }
    }
}

fn mapping(it: &EventSourceMappingConfiguration) -> Option<Mapping> {
    let queue = it.event_source_arn().filter(|arn| arn.contains(":sqs:"))?;
    let count = |n: i32| u64::try_from(n).ok();
    let scaling = it.scaling_config().and_then(|scaling| scaling.maximum_concurrency());
    let source = Source {
        batch: it.batch_size().and_then(count).into(),
        window: it
            .maximum_batching_window_in_seconds()
            .and_then(count)
            .map(Duration::from_secs)
            .into(),
        reports_failures: Known::Is(
            it.function_response_types().contains(&FunctionResponseType::ReportBatchItemFailures),
        ),
        maximum_concurrency: scaling.and_then(count).into(),
    };
    Some(Mapping { queue: queue.to_owned(), function: it.function_arn()?.to_owned(), source })
}
