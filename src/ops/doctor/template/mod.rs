//! A SAM or CloudFormation template, read as a deployment.

mod conditions;
mod functions;
mod parameters;
mod property;
mod queues;
mod read;
mod resolve;
mod roles;
mod tables;
mod yaml;

use std::path::Path;

use super::facts::Deployment;
use crate::error::BoxError;
use crate::ops::Usage;

pub use parameters::Parameter;

/// CloudFormation takes no larger one.
const LARGEST: u64 = 1024 * 1024;

/// The workers of the template at `path`, with these parameters; those of one function alone, if it
/// is named.
pub fn read(
    path: &Path,
    given: &[Parameter],
    function: Option<&str>,
) -> Result<Vec<Deployment>, BoxError> {
    let shown = path.display();
    let size = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if size > LARGEST {
        return Err(format!("{shown} is over {LARGEST} bytes, and no template").into());
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    deployments(&text, given, function).map_err(|error| match error.is::<Usage>() {
        true => error,
        false => format!("{shown}: {error}").into(),
    })
}

fn deployments(
    text: &str,
    given: &[Parameter],
    function: Option<&str>,
) -> Result<Vec<Deployment>, BoxError> {
    let template = yaml::read(text)?;
    let scope = resolve::Scope::new(&template, given)?;
    if let Some(name) = parameters::unknown(&template, given) {
        let fault = format!("there is no parameter {name:?} in this template");
        return Err(Usage(fault.into()).into());
    }
    Ok(read::deployments(&scope, function)?)
}

#[cfg(test)]
mod tests;
