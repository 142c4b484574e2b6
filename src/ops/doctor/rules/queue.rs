//! Rules of the queue and its dead-letter queue.

use std::time::Duration;

use super::{FINE, Judged, one, shown};
use crate::ops::doctor::facts::Deployment;
use crate::ops::doctor::known::{Known, Untold};

/// The longest that SQS keeps a message.
const LONGEST: Duration = Duration::from_secs(14 * 24 * 3600);

/// What AWS asks for, in timeouts of the function.
const TIMEOUTS: u32 = 6;

/// The queue's visibility timeout and the function's timeout.
fn times(deployment: &Deployment) -> Result<Option<(Duration, Duration)>, Untold> {
    let Some(function) = deployment.function.told()? else { return Ok(None) };
    let Some(queue) = deployment.queue.told()? else { return Ok(None) };
    Ok(queue.visibility.told()?.copied().zip(function.timeout.told()?.copied()))
}

pub fn visibility_under_timeout(deployment: &Deployment) -> Judged {
    match times(deployment)? {
        Some((visibility, timeout)) if timeout > visibility => one(
            format!(
                "the function may run for {}, and the queue hides a message for {}",
                shown(timeout),
                shown(visibility)
            ),
            set_visibility(needed(deployment, timeout)?),
        ),
        _ => FINE,
    }
}

pub fn visibility_short(deployment: &Deployment) -> Judged {
    let Some((visibility, timeout)) = times(deployment)? else { return FINE };
    let needed = needed(deployment, timeout)?;
    if visibility >= needed || timeout > visibility {
        return FINE;
    }
    one(
        format!(
            "the queue hides a message for {}; {TIMEOUTS} x the function's {} and the batching \
             window are {}",
            shown(visibility),
            shown(timeout),
            shown(needed)
        ),
        set_visibility(needed),
    )
}

fn needed(deployment: &Deployment, timeout: Duration) -> Result<Duration, Untold> {
    let window = match deployment.source.told()? {
        Some(source) => source.window.told()?.copied().unwrap_or_default(),
        None => Duration::ZERO,
    };
    Ok(timeout * TIMEOUTS + window)
}

fn set_visibility(needed: Duration) -> String {
    format!("set the queue's VisibilityTimeout to {} or more", needed.as_secs())
}

pub fn no_dlq(deployment: &Deployment) -> Judged {
    let Some(queue) = deployment.queue.told()? else { return FINE };
    let Some(redrive) = queue.redrive.told()? else {
        return one(
            "the queue has no redrive policy",
            "make a queue, and set RedrivePolicy to its ARN with maxReceiveCount 10",
        );
    };
    match &deployment.dlq {
        Known::Absent => one(
            format!("the redrive policy leads to {}, which is not there", redrive.target.shown()),
            "make that queue, or correct RedrivePolicy",
        ),
        _ => FINE,
    }
}

fn max_receive(deployment: &Deployment) -> Result<Option<u64>, Untold> {
    let Some(queue) = deployment.queue.told()? else { return Ok(None) };
    let Some(redrive) = queue.redrive.told()? else { return Ok(None) };
    redrive.max_receive.told().map(|count| count.copied())
}

pub fn max_receive_low(deployment: &Deployment) -> Judged {
    match max_receive(deployment)? {
        Some(count) if count < 5 => {
            one(format!("maxReceiveCount is {count}"), "set maxReceiveCount to 5 or more, 10 say")
        }
        _ => FINE,
    }
}

pub fn max_receive_under_attempts(deployment: &Deployment) -> Judged {
    let Some(count) = max_receive(deployment)? else { return FINE };
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let most = jobs.jobs.iter().max_by_key(|job| job.attempts);
    match most {
        // Below five it is told already.
        Some(job) if count >= 5 && count <= u64::from(job.attempts) => one(
            format!(
                "maxReceiveCount is {count}, and job {:?} has {} attempts",
                job.name, job.attempts
            ),
            format!("set maxReceiveCount above {}, or give the job fewer attempts", job.attempts),
        ),
        _ => FINE,
    }
}

pub fn dlq_retention_short(deployment: &Deployment) -> Judged {
    let Some(queue) = deployment.queue.told()? else { return FINE };
    // The age of a message begins anew where a FIFO queue's is moved.
    if queue.is_fifo.told()? == Some(&true) {
        return FINE;
    }
    let Some(dlq) = deployment.dlq.told()? else { return FINE };
    let times = queue.retention.told()?.zip(dlq.retention.told()?);
    match times {
        // Nothing is longer than the longest.
        Some((kept, dead)) if dead <= kept && *dead < LONGEST => one(
            format!(
                "the dead-letter queue keeps messages for {}, the queue for {}",
                shown(*dead),
                shown(*kept)
            ),
            format!("set the dead-letter queue's MessageRetentionPeriod to {}", LONGEST.as_secs()),
        ),
        _ => FINE,
    }
}

pub fn dlq_type_differs(deployment: &Deployment) -> Judged {
    let Some(queue) = deployment.queue.told()? else { return FINE };
    let Some(dlq) = deployment.dlq.told()? else { return FINE };
    let named = |is_fifo| if is_fifo { "FIFO" } else { "a standard queue" };
    match queue.is_fifo.told()?.zip(dlq.is_fifo.told()?) {
        Some((queue, dlq)) if queue != dlq => one(
            format!("the queue is {}, its dead-letter queue {}", named(*queue), named(*dlq)),
            "make a dead-letter queue of the queue's own kind (FIFO names end with .fifo)",
        ),
        _ => FINE,
    }
}

pub fn dlq_url_missing(deployment: &Deployment) -> Judged {
    if deployment.queue.told()?.is_none() || deployment.quarantine.told()?.is_some() {
        return FINE;
    }
    one(
        "ONLYONCE_DLQ_URL is not set for the worker",
        "set it to the dead-letter queue's URL, and allow sqs:SendMessage there",
    )
}

pub fn dlq_url_other(deployment: &Deployment) -> Judged {
    let Some(queue) = deployment.queue.told()? else { return FINE };
    let Some(redrive) = queue.redrive.told()? else { return FINE };
    match deployment.quarantine.told()? {
        Some(place) if place.name != redrive.target.name => one(
            format!(
                "ONLYONCE_DLQ_URL leads to {}, the queue's redrive policy to {}",
                place.shown(),
                redrive.target.shown()
            ),
            "let both lead to one queue",
        ),
        _ => FINE,
    }
}
