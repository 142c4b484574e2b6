//! The `eventbridge` effect's fields.

use std::sync::Arc;

use serde::Deserialize;

use super::aws::{self, AT_LEAST_ONCE, AT_MOST_ONCE, Given};
use super::{AROUND_THE_REQUEST, Common, Fields, Wrong};
use crate::effect::aws::eventbridge::EventBridgeEffect;
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventBridgeTable {
    bus: Option<String>,
    source: Option<String>,
    detail_type: Option<String>,
    #[serde(default)]
    pass_key: bool,
}

/// Not keyed: EventBridge remembers no key.
const GIVES: [(&str, Given, &str); 2] = [AT_LEAST_ONCE, AT_MOST_ONCE];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: EventBridgeTable = fields.read()?;
    let mut wrong = Wrong::default();
    let given = common.guarantee(&GIVES);
    let guarantee = given.and_then(|given| aws::guarantee(given, None)).map_err(|text| {
        // Whoever asks for it is told why.
        let is_keyed = common.guarantee == Some("keyed");
        if is_keyed { format!("{text}: EventBridge itself remembers no key") } else { text }
    });
    let guarantee = wrong.keep("guarantee", guarantee);
    let bus = wrong.keep("bus", aws::fixed("bus", table.bus.as_deref(), "default"));
    let source = aws::fixed("source", table.source.as_deref(), "shop.orders");
    let source = wrong.keep("source", source);
    let detail_type = aws::fixed("detail_type", table.detail_type.as_deref(), "OrderShipped");
    let detail_type = wrong.keep("detail_type", detail_type);
    let (Some(guarantee), Some(bus), Some(source), Some(detail_type)) =
        (guarantee, bus, source, detail_type)
    else {
        return Err(wrong);
    };
    let mut effect = EventBridgeEffect::new(bus, source, detail_type, guarantee);
    effect.passes_key = table.pass_key;
    effect.timeout = common.timeout.unwrap_or(effect.timeout);
    let timeout = effect.timeout.saturating_add(AROUND_THE_REQUEST);
    let effect = Arc::new(effect);
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    Ok(job.timeout(timeout))
}
