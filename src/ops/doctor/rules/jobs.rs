//! Rules of the jobs file.

use std::time::Duration;

use super::{FINE, Judged, one, shown};
use crate::ops::doctor::facts::{Deployment, Jobs};
use crate::ops::doctor::finding::Said;

pub fn retention_short(deployment: &Deployment) -> Judged {
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let kept = jobs.jobs.iter().filter_map(|job| Some((&job.name, job.retention?)));
    let Some((job, least)) = kept.min_by_key(|(_, kept)| *kept) else { return FINE };
    let Some(queue) = deployment.queue.told()? else { return FINE };
    let mut needed = queue.retention.told()?.copied().unwrap_or_default();
    if let Some(dlq) = deployment.dlq.told()? {
        needed += dlq.retention.told()?.copied().unwrap_or_default();
    }
    if least >= needed {
        return FINE;
    }
    one(
        format!(
            "job {job:?} is remembered for {}; its messages may come for {}: the queue's and the \
             dead-letter queue's retention",
            shown(least),
            shown(needed)
        ),
        format!("set its retention to {} or more, or \"forever\", in the jobs file", days(needed)),
    )
}

/// Whole days, and never fewer.
fn days(time: Duration) -> String {
    format!("{}d", time.as_secs().div_ceil(24 * 3600))
}

pub fn key_window_short(deployment: &Deployment) -> Judged {
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let short = jobs.jobs.iter().filter_map(|job| {
        let window = job.key_window.filter(|window| *window < job.horizon)?;
        Some(Said::new(
            format!(
                "job {:?}: its provider remembers a key for {}, and its retries may take {}",
                job.name,
                shown(window),
                shown(Duration::from_secs(job.horizon.as_secs()))
            ),
            "give it fewer or quicker retries, or an `ask` by which the provider can be asked",
        ))
    });
    Ok(short.collect())
}

/// What a key must not be made of, and its names in the world. Not what may as well name an operation:
/// a date, an object's uuid.
const MESSAGE_IDS: [&str; 3] = ["messageid", "sqsmessageid", "receipthandle"];
const NEW_EACH_TIME: [&str; 9] = [
    "time",
    "timestamp",
    "eventtime",
    "sentat",
    "senttimestamp",
    "requestid",
    "awsrequestid",
    "traceid",
    "nonce",
];

/// The names in an expression, the last of each path, without case and separators.
fn names(text: &str) -> impl Iterator<Item = String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '"');
    text.split(move |c| !is_name(c)).filter_map(|path| {
        let last = path.rsplit('.').next()?.to_ascii_lowercase();
        let plain: String = last.chars().filter(char::is_ascii_alphanumeric).collect();
        (!plain.is_empty()).then_some(plain)
    })
}

/// Where the key is found, as the jobs file says it, and in which words.
fn key_places(jobs: &Jobs) -> impl Iterator<Item = (String, &str)> {
    let attribute =
        (format!("key_attribute = {:?}", jobs.key_attribute), jobs.key_attribute.as_str());
    let expression = jobs.key_expression.as_deref().map(|text| (format!("key = {text:?}"), text));
    [Some(attribute), expression].into_iter().flatten()
}

const STABLE: &str = "take a field that names the business operation, such as an order's number";

fn made_of(deployment: &Deployment, unfit: &[&str], what: &str) -> Judged {
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let found = key_places(jobs).filter_map(|(shown, text)| {
        let name = names(text).find(|name| unfit.contains(&name.as_str()))?;
        Some(Said::new(format!("[message] {shown} makes the key of {name}, {what}"), STABLE))
    });
    Ok(found.collect())
}

pub fn key_from_message_id(deployment: &Deployment) -> Judged {
    made_of(deployment, &MESSAGE_IDS, "the transport's own id")
}

pub fn key_from_event_id(deployment: &Deployment) -> Judged {
    let Some(jobs) = deployment.jobs.told()? else { return FINE };
    let Some(text) = jobs.key_expression.as_deref().filter(|_| jobs.sees_event) else {
        return FINE;
    };
    // Of the event itself, not of its detail.
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !text.split(|c| !is_name(c)).any(|path| path == "id") {
        return FINE;
    }
    one(
        format!("[message] key = {text:?} makes the key of the event's id"),
        "take a field of `detail`, where there is one that names the operation",
    )
}

pub fn key_unstable(deployment: &Deployment) -> Judged {
    made_of(deployment, &NEW_EACH_TIME, "which is new each time it is sent")
}
