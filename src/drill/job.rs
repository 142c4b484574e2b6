//! The drill's job: one effect against the ledger, and one row that commits with its completion.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::playing::Playing;
use super::row::Event;
use super::scenario::{DrillKey, Effect, Point, Scenario};
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::Job;
use crate::protocol::{Retention, RetryPolicy};
use crate::runtime::Clock;

/// The effect's name.
const EFFECT: &str = "charge";
/// Enough for a crash of its own and those of the neighbours in its batch.
const ATTEMPTS: u32 = 12;
/// After so many one that is to fail gives up.
const FAILS: u32 = 3;
const RETRIES_AFTER: Duration = Duration::from_secs(1);
/// The longest that a message may ask it to take.
const LONGEST: u64 = 10 * 60 * 1000;
/// Records of the drill are of no use on the next day.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// What the drill's messages carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// What is played, as the key says it, too.
    pub scenario: Scenario,
    /// How long the job takes.
    pub takes_ms: u64,
    /// What is asked for: another amount is another payload.
    pub amount: u64,
}

pub(super) fn job(playing: Arc<Playing>) -> Job {
    let handler = move |order: Order, cx: Context| {
        let playing = playing.clone();
        async move { Box::pin(run(&playing, &order, &cx)).await }
    };
    Job::new(super::JOB, handler)
        .retry(RetryPolicy::fixed(RETRIES_AFTER, ATTEMPTS))
        .retention(Retention::For(KEPT))
}

async fn run(playing: &Playing, order: &Order, cx: &Context) -> Result<bool, HandlerError> {
    let key: DrillKey = cx.key().as_str().parse().map_err(|()| {
        HandlerError::terminal(
            "this is no key of the drill; send its messages with `onlyonce drill`",
        )
    })?;
    if key.scenario != order.scenario {
        return Err(HandlerError::terminal("its key and its payload name two scenarios"));
    }
    playing.crash(&key, Point::AfterClaim).await;
    if !key.scenario.is_brief() {
        cx.stage(playing.ledger.counted(&key)?).await?;
    }
    let until = playing.clock.now() + Duration::from_millis(order.takes_ms.min(LONGEST));
    playing.clock.sleep_until(until).await;
    if key.scenario.fails() && !playing.ledger.is_mended(&key).await? {
        let why = "it fails until it is mended, as the drill has it";
        return Err(match cx.attempt() {
            FAILS.. => HandlerError::terminal(why),
            _ => HandlerError::retryable(why),
        });
    }
    let call = Call { playing, key: &key, token: cx.token().0, request: order.amount.to_string() };
    let effect = cx.effect(EFFECT).request(order);
    match key.scenario.effect() {
        Effect::Keyed => {
            effect.keyed(async |effect_key| call.made(effect_key.as_str()).await).await
        }
        Effect::AtMostOnce => effect.at_most_once(async || call.made("none").await).await,
    }
}

struct Call<'a> {
    playing: &'a Playing,
    key: &'a DrillKey,
    token: u64,
    request: String,
}

impl Call<'_> {
    /// The effect, with its provider's answer: whether it did anything.
    async fn made(&self, effect_key: &str) -> Result<bool, HandlerError> {
        let Self { playing, key, token, .. } = *self;
        let called =
            Event::Called { token, key: effect_key.to_owned(), request: self.request.clone() };
        // Nothing is done that is not put down.
        playing
            .put_down(key, called)
            .await
            .map_err(|error| HandlerError::from(error).not_sent())?;
        playing.crash(key, Point::InEffect).await;
        let is_first = match key.scenario.effect() {
            Effect::Keyed => playing.ledger.accept(key, effect_key).await?,
            Effect::AtMostOnce => true,
        };
        if !key.scenario.is_brief() {
            playing.note(key, Event::Answered { token, is_first }).await;
        }
        playing.crash(key, Point::AfterEffect).await;
        Ok(is_first)
    }
}
