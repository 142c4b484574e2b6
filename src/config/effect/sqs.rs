//! The `sqs` effect's fields.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::aws::{self, AT_LEAST_ONCE, AT_MOST_ONCE, Given, Known};
use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::config::jobs_file::duration;
use crate::effect::aws::sqs::SqsEffect;
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SqsTable {
    queue_url: Option<String>,
    group: Option<String>,
    job: Option<String>,
    body: Option<String>,
    deduplicated_by: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    key_window: Option<Duration>,
    #[serde(default)]
    pass_key: bool,
}

const GIVES: [(&str, Given, &str); 3] = [
    ("keyed", Given::Keyed, "a FIFO queue for five minutes, or whoever receives, knows the key"),
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: SqsTable = fields.read()?;
    let mut wrong = Wrong::default();
    wrong.keep("key_window", common.outlives(table.key_window));
    let queue_url = wrong.keep("queue_url", table.queue_url());
    let name = queue_url.as_deref();
    let known =
        Known { deduplicated_by: table.deduplicated_by.as_deref(), key_window: table.key_window };
    let given = common.guarantee(&GIVES);
    let guarantee = given.and_then(|given| known.guarantee(given, "queue", name));
    let guarantee = wrong.keep("guarantee", guarantee);
    let group = aws::group(table.group.as_deref(), "queue", name);
    let group = wrong.keep("group", group);
    let next = aws::fixed_if_given("job", table.job.as_deref(), "order.ship");
    let next = wrong.keep("job", next);
    let is_raw = wrong.keep("body", aws::is_raw(table.body.as_deref()));
    let (Some(guarantee), Some(queue_url), Some(group), Some(next), Some(is_raw), true) =
        (guarantee, queue_url, group, next, is_raw, wrong.0.is_empty())
    else {
        return Err(wrong);
    };
    let mut effect = SqsEffect::new(queue_url, guarantee);
    (effect.group, effect.job) = (group, next);
    effect.passes_key = table.pass_key;
    effect.timeout = common.timeout.unwrap_or(effect.timeout);
    let timeout = effect.timeout.saturating_add(AROUND_THE_REQUEST);
    let effect = Arc::new(effect);
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    let job = job.timeout(timeout).key_window(guarantee.window());
    Ok(if is_raw { job.raw() } else { job })
}

impl SqsTable {
    fn queue_url(&self) -> Result<String, String> {
        let example = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders";
        let url = aws::fixed("queue_url", self.queue_url.as_deref(), example)?;
        match url::Url::parse(&url) {
            Ok(read) if read.has_host() && read.path().len() > 1 => Ok(url),
            _ => Err(format!("queue_url {url:?} is no queue's URL, such as {example}")),
        }
    }
}
