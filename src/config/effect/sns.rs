//! The `sns` effect's fields.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::aws::{self, AT_LEAST_ONCE, AT_MOST_ONCE, Given, Known};
use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::config::jobs_file::duration;
use crate::effect::aws::sns::SnsEffect;
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnsTable {
    topic_arn: Option<String>,
    subject: Option<String>,
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
    ("keyed", Given::Keyed, "a FIFO topic for five minutes, or whoever receives, knows the key"),
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: SnsTable = fields.read()?;
    let mut wrong = Wrong::default();
    wrong.keep("key_window", common.outlives(table.key_window));
    let topic_arn = wrong.keep("topic_arn", table.topic_arn());
    let name = topic_arn.as_deref();
    let known =
        Known { deduplicated_by: table.deduplicated_by.as_deref(), key_window: table.key_window };
    let given = common.guarantee(&GIVES);
    let guarantee = given.and_then(|given| known.guarantee(given, "topic", name));
    let guarantee = wrong.keep("guarantee", guarantee);
    let group = wrong.keep("group", aws::group(table.group.as_deref(), "topic", name));
    let subject = wrong.keep("subject", aws::template("subject", table.subject.as_deref()));
    let next = aws::fixed_if_given("job", table.job.as_deref(), "order.ship");
    let next = wrong.keep("job", next);
    let is_raw = wrong.keep("body", aws::is_raw(table.body.as_deref()));
    let (Some(guarantee), Some(topic_arn), Some(group), Some(subject), Some(next), Some(is_raw)) =
        (guarantee, topic_arn, group, subject, next, is_raw)
    else {
        return Err(wrong);
    };
    if !wrong.0.is_empty() {
        return Err(wrong);
    }
    let mut effect = SnsEffect::new(topic_arn, guarantee);
    (effect.group, effect.subject, effect.job) = (group, subject, next);
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

impl SnsTable {
    fn topic_arn(&self) -> Result<String, String> {
        let example = "arn:aws:sns:eu-west-1:123456789012:orders";
        let arn = aws::fixed("topic_arn", self.topic_arn.as_deref(), example)?;
        if arn.starts_with("arn:") && arn.split(':').nth(2) == Some("sns") {
            return Ok(arn);
        }
        Err(format!("topic_arn {arn:?} is no topic's ARN, such as {example}"))
    }
}
