//! A worker with jobs written in Rust, for trying failures out on a real queue:
//!
//! - `echo` answers its payload,
//! - `explode` panics,
//! - `slow` takes `{"ms": N}`,
//! - `note` takes `{"ms": N}`, and in the middle of it adds a line to the file `NOTES`: a keyed effect's
//!   key and the job's,
//! - `three-steps` has three keyed effects, one after another,
//! - `charge-once` posts its fields to `CHARGES_URL`, with the header `CHARGES_TOKEN`, at most once,
//! - `reserve` takes `{"sku": .., "quantity": N}` out of the table that `STOCK_TABLE` names, fused,
//! - `reserve-claimed` does the same under a claim,
//! - `order` does the same, fused, and tells of it by an event: `{"order": .., "event": .., "sku": ..,
//!   "quantity": N}`, where `order` is the order key, and `event` the event's name.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use onlyonce::context::Context;
use onlyonce::error::{BoxError, HandlerError};
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{EffectKey, RetryPolicy};
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::store::RowWrite;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let soon = RetryPolicy::fixed(Duration::from_secs(1), 2);
    // Attempts that are killed count as well.
    let often = RetryPolicy::fixed(Duration::from_secs(1), 100);
    let brief = Duration::from_secs(2);
    let jobs = Router::new()
        .job("echo", echo)
        .job("slow", slow)
        .with(Job::new("note", note).retry(often))
        .job("three-steps", three_steps)
        .job("charge-once", charge_once)
        .with(Job::new("reserve", reserve).retry(often).timeout(brief).fused())
        .with(Job::new("reserve-claimed", reserve).retry(often).timeout(brief))
        .with(Job::new("order", order).retry(often).timeout(brief).fused())
        .with(Job::new("explode", explode).retry(soon));
    onlyonce::serve(jobs).await
}

async fn echo(payload: Value, _: Context) -> Result<Value, HandlerError> {
    Ok(payload)
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

async fn slow(slow: Slow, _: Context) -> Result<u64, HandlerError> {
    SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(slow.ms)).await;
    Ok(slow.ms)
}

async fn note(slow: Slow, cx: Context) -> Result<(), HandlerError> {
    let half = Duration::from_millis(slow.ms / 2);
    SystemClock.sleep_until(SystemClock.now() + half).await;
    let job = cx.key().clone();
    let noted = async |key: EffectKey| {
        let mut notes =
            OpenOptions::new().append(true).create(true).open(std::env::var("NOTES")?)?;
        notes.write_all(format!("{key} {}\n", job.as_str()).as_bytes())?;
        Ok::<_, HandlerError>(())
    };
    cx.effect("note").keyed(noted).await?;
    SystemClock.sleep_until(SystemClock.now() + half).await;
    Ok(())
}

async fn three_steps(_: Value, cx: Context) -> Result<Vec<String>, HandlerError> {
    let mut keys = Vec::new();
    for step in ["first", "second", "third"] {
        let kept = cx.effect(step).keyed(async |key| Ok::<_, HandlerError>(key.to_string()));
        keys.push(kept.await?);
    }
    Ok(keys)
}

async fn charge_once(order: BTreeMap<String, Value>, cx: Context) -> Result<u16, HandlerError> {
    cx.effect("charge").at_most_once(async || post(&order).await).await
}

async fn post(order: &BTreeMap<String, Value>) -> Result<u16, HandlerError> {
    let fields = order.iter().map(|(name, value)| match value {
        Value::String(text) => (name, text.clone()),
        other => (name, other.to_string()),
    });
    let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    // Fails only if there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answer = reqwest::Client::new()
        .post(std::env::var("CHARGES_URL")?)
        .header("authorization", std::env::var("CHARGES_TOKEN")?)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form)
        .send()
        .await?
        .error_for_status()?;
    Ok(answer.status().as_u16())
}

#[derive(Deserialize, Serialize)]
struct Goods {
    sku: String,
    quantity: i64,
}

async fn reserve(goods: Goods, cx: Context) -> Result<(), HandlerError> {
    cx.stage(RowWrite::Add {
        table: std::env::var("STOCK_TABLE")?,
        key: [("sku".to_owned(), goods.sku.into())].into(),
        add: [("available".to_owned(), -goods.quantity)].into(),
        floor: [("available".to_owned(), 0)].into(),
    })
    .await
}

#[derive(Deserialize, Serialize)]
struct Order {
    order: String,
    event: String,
    #[serde(flatten)]
    goods: Goods,
}

async fn order(order: Order, cx: Context) -> Result<String, HandlerError> {
    let event_id = cx.outbox_for(&order.order, &order.event, &order).await?;
    reserve(order.goods, cx).await?;
    Ok(event_id.as_str().to_owned())
}

#[allow(clippy::panic, reason = "that is the point of it")]
async fn explode(_: Value, _: Context) -> Result<(), HandlerError> {
    panic!("a bug in one job")
}
