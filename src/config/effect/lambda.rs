//! The `lambda` effect's fields.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::aws::{self, AT_LEAST_ONCE, AT_MOST_ONCE, Given};
use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::config::jobs_file::duration;
use crate::effect::aws::lambda::LambdaEffect;
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LambdaTable {
    function: Option<String>,
    qualifier: Option<String>,
    body: Option<String>,
    #[serde(default, deserialize_with = "duration")]
    key_window: Option<Duration>,
}

const GIVES: [(&str, Given, &str); 3] = [
    ("keyed", Given::Keyed, "the function runs each idempotency-key once, or passes it on"),
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: LambdaTable = fields.read()?;
    let mut wrong = Wrong::default();
    wrong.keep("key_window", common.outlives(table.key_window));
    let given = common.guarantee(&GIVES);
    let guarantee = given.and_then(|given| aws::guarantee(given, table.key_window));
    let guarantee = wrong.keep("guarantee", guarantee);
    let function = aws::fixed("function", table.function.as_deref(), "a-function's-name-or-arn");
    let function = wrong.keep("function", function);
    let qualifier = aws::fixed_if_given("qualifier", table.qualifier.as_deref(), "live");
    let qualifier = wrong.keep("qualifier", qualifier);
    let is_raw = wrong.keep("body", aws::is_raw(table.body.as_deref()));
    let (Some(guarantee), Some(function), Some(qualifier), Some(is_raw), true) =
        (guarantee, function, qualifier, is_raw, wrong.0.is_empty())
    else {
        return Err(wrong);
    };
    let mut effect = LambdaEffect::new(function, guarantee);
    effect.qualifier = qualifier;
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
