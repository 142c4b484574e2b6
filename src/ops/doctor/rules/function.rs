//! Rules of the function and its event source.

use super::{FINE, Judged, one, shown};
use crate::ops::doctor::facts::Deployment;

/// What Lambda takes at once without a window.
const BATCH: u64 = 10;

pub fn partial_failures_off(deployment: &Deployment) -> Judged {
    let Some(source) = deployment.source.told()? else { return FINE };
    if source.reports_failures.told()? == Some(&true) {
        return FINE;
    }
    one(
        "the event source does not read which messages of a batch have failed",
        "set its FunctionResponseTypes to [ReportBatchItemFailures]",
    )
}

pub fn batch_without_window(deployment: &Deployment) -> Judged {
    let Some(source) = deployment.source.told()? else { return FINE };
    let Some(batch) = source.batch.told()? else { return FINE };
    if *batch <= BATCH || source.window.told()?.is_some_and(|window| window.as_secs() >= 1) {
        return FINE;
    }
    one(
        format!("the event source's batch size is {batch}, and it has no batching window"),
        "set MaximumBatchingWindowInSeconds to 1 or more, or BatchSize to 10",
    )
}

pub fn concurrency_under_maximum(deployment: &Deployment) -> Judged {
    let Some(function) = deployment.function.told()? else { return FINE };
    let Some(source) = deployment.source.told()? else { return FINE };
    let Some(reserved) = function.reserved.told()? else { return FINE };
    match source.maximum_concurrency.told()? {
        Some(maximum) if reserved < maximum => one(
            format!(
                "the function has {reserved} reserved, and the event source begins up to {maximum}"
            ),
            format!("reserve {maximum} or more, or lower the event source's MaximumConcurrency"),
        ),
        _ => FINE,
    }
}

pub fn job_timeout_over_function(deployment: &Deployment) -> Judged {
    let Some(function) = deployment.function.told()? else { return FINE };
    let Some(limit) = function.timeout.told()? else { return FINE };
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let longest =
        jobs.jobs.iter().filter(|job| job.timeout.is_some()).max_by_key(|job| job.timeout);
    match longest.and_then(|job| Some((&job.name, job.timeout?))) {
        Some((job, timeout)) if timeout > *limit => one(
            format!(
                "job {job:?} may take {} with what is around it, the function {}",
                shown(timeout),
                shown(*limit)
            ),
            format!("set the function's timeout above {}, or the job's lower", shown(timeout)),
        ),
        _ => FINE,
    }
}

pub fn settings_faulty(deployment: &Deployment) -> Judged {
    let Some(function) = deployment.function.told()? else { return FINE };
    match &function.fault {
        Some(fault) => one(fault.clone(), "correct the function's environment"),
        None => FINE,
    }
}
