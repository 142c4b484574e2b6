//! `doctor` as a command: its arguments, and where the facts come from.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::checklist::checklist;
use super::facts::{Deployment, Jobs};
use super::known::Known;
use super::live::{self, Target};
use super::report::Report;
use super::rules;
use super::template::{self, Parameter};
use crate::config::Settings;
use crate::error::BoxError;
use crate::handler::Router;
use crate::sdk::SdkConfig;

/// What `doctor` is asked for.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  onlyonce doctor --function shop-worker\n  \
    onlyonce doctor --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/jobs\n  \
    onlyonce doctor --template template.yaml --parameter FunctionTimeout=60 --strict\n  \
    onlyonce doctor --checklist\n\n\
    It reads and changes nothing. What it may not read, or a template does not say, is said to be \
    not judged, with the permission that it needs. Exit status 1 with a fault, and with --strict \
    with a warning.")]
pub struct DoctorArguments {
    /// The Lambda function, with each queue that it serves; in a template, its logical name.
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// The queue, and the functions that serve it; ONLYONCE_QUEUE_URL by default.
    #[arg(long, value_name = "URL", conflicts_with = "template")]
    queue_url: Option<String>,
    /// Judge a SAM or CloudFormation template instead of what is deployed.
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// A parameter of the template.
    #[arg(long, value_name = "NAME=VALUE", requires = "template")]
    parameter: Vec<Parameter>,
    /// Print the ten questions that every queue of jobs should answer, with a verdict each.
    #[arg(long)]
    checklist: bool,
    /// Let warnings fail, too.
    #[arg(long)]
    strict: bool,
}

impl DoctorArguments {
    /// Runs it, with the jobs given or those of the jobs file. Answers 1 if there is a fault. `sdk` is
    /// awaited only where AWS is asked.
    pub async fn run(
        self,
        settings: Settings,
        given: Option<&Router>,
        sdk: impl Future<Output = SdkConfig>,
        is_json: bool,
    ) -> Result<ExitCode, BoxError> {
        let jobs = match given {
            Some(router) => Known::Is(Jobs::from(router)),
            None => jobs(&settings)?,
        };
        let function = self.function.as_deref();
        let mut deployments = match &self.template {
            Some(path) => template::read(path, &self.parameter, function)?,
            None => {
                let set = settings.queue_url.as_deref().filter(|_| function.is_none());
                let target = Target { function, queue_url: self.queue_url.as_deref().or(set) };
                Box::pin(live::read(&sdk.await, &target, &settings)).await?
            }
        };
        name(&mut deployments);
        for deployment in &mut deployments {
            deployment.jobs = jobs.clone();
        }
        let report = examine(&deployments, self.checklist);
        if is_json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            report.print();
        }
        Ok(if report.is_bad(self.strict) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Of a worker that serves several queues, each has a name of its own.
fn name(deployments: &mut [Deployment]) {
    let names: Vec<_> = deployments.iter().map(|it| it.name.clone()).collect();
    for it in deployments {
        if names.iter().filter(|name| **name == it.name).count() > 1
            && let Known::Is(queue) = &it.queue
        {
            it.name = format!("{} on {}", it.name, queue.place.shown());
        }
    }
}

/// What a jobs file says, without its secrets; a worker in Rust has none.
fn jobs(settings: &Settings) -> Result<Known<Jobs>, BoxError> {
    if !settings.jobs.exists() {
        let file = settings.jobs.display();
        return Ok(Known::untold(format!(
            "there is no {file} here; ONLYONCE_JOBS names the jobs file"
        )));
    }
    let router = Router::from_jobs_file_without_secrets(&settings.jobs)?;
    Ok(Known::Is(Jobs::from(&router)))
}

fn examine(deployments: &[Deployment], with_checklist: bool) -> Report {
    let findings: Vec<_> = deployments.iter().flat_map(rules::judge).collect();
    let points = with_checklist.then(|| checklist(deployments, &findings));
    let mut names: Vec<_> = deployments.iter().map(|it| it.name.clone()).collect();
    names.dedup();
    Report::new(names, findings, points)
}
