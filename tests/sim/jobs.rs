//! The jobs that are simulated: each class of effect, alone and together, in every mood.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::store::{RowValue, RowWrite};
use onlyonce::{Context, HandlerError, Job, RetryPolicy, Router};
use serde_json::Value;

use super::plan::Plan;
use super::provider::{LAG, Manner, Provider, WINDOW};

pub const JOBS: [&str; 11] = [
    "stage", "fused", "charge", "chain", "windowed", "asked", "book", "letter", "mail", "mixed",
    "idle",
];

/// How handlers end: see [`mood`].
pub const MOODS: u8 = 7;

/// What a request may still be on its way for.
const SETTLES: Duration = LAG;

/// The effects that a completed job must have had, each really done at least once; those whose
/// class says so, at most once.
pub fn effects(job: &str) -> &'static [&'static str] {
    match job {
        "charge" | "windowed" | "asked" => &["charge"],
        "chain" => &["charge", "invoice", "mail"],
        "book" => &["book"],
        "letter" => &["letter"],
        "mail" => &["mail"],
        "mixed" => &["charge", "book", "letter", "mail"],
        _ => &[],
    }
}

/// How often what a job stages is committed when it completes.
pub fn staged(job: &str) -> usize {
    usize::from(matches!(job, "stage" | "fused" | "mixed"))
}

/// The jobs that a plan asks for.
pub fn router(
    plan: &Plan,
    provider: &Arc<Provider>,
    began: &Arc<dyn Fn(&Context) + Send + Sync>,
) -> Router {
    let is_asked = |name: &&&str| plan.messages.iter().any(|sent| sent.job == **name);
    JOBS.iter().filter(is_asked).fold(Router::new(), |router, name| {
        let (provider, began) = (provider.clone(), began.clone());
        let job = Job::new(*name, move |payload: Value, cx: Context| {
            let provider = provider.clone();
            began(&cx);
            async move { run(name, &payload, &cx, &provider).await }
        });
        let job =
            job.retry(RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(20), 4));
        let job = job.timeout(Duration::from_secs(20));
        router.with(if *name == "fused" { job.fused() } else { job })
    })
}

async fn run(
    name: &str,
    payload: &Value,
    cx: &Context,
    provider: &Arc<Provider>,
) -> Result<u64, HandlerError> {
    let number = |field: &str| payload[field].as_u64().unwrap_or_default();
    let (n, work) = (number("n"), Duration::from_millis(number("work")));
    if staged(name) > 0 {
        cx.stage(row(n)).await?;
    }
    pause(work).await;
    let mut result = 0;
    for effect in effects(name) {
        result = one(name, effect, n + result, cx, provider).await?;
        pause(work / 4).await;
    }
    mood(number("mood"), cx).await?;
    Ok(result)
}

async fn one(
    job: &str,
    name: &'static str,
    request: u64,
    cx: &Context,
    provider: &Arc<Provider>,
) -> Result<u64, HandlerError> {
    let effect = cx.effect(name).request(&request).settles_within(SETTLES);
    let send = |key, manner| provider.send(cx, name, key, request, manner);
    match (job, name) {
        ("windowed", _) => {
            let effect = effect.window(WINDOW);
            effect.keyed(async |key| send(Some(key), Manner::Windowed).await).await
        }
        ("asked", _) => {
            let effect = effect.window(WINDOW);
            let asking = async |key| provider.ask(&key).await;
            effect.keyed_or_ask(asking, async |key| send(Some(key), Manner::Windowed).await).await
        }
        (_, "charge" | "invoice") => {
            effect.keyed(async |key| send(Some(key), Manner::Keyed).await).await
        }
        (_, "book") => {
            let asking = async |key| provider.ask(&key).await;
            effect.reconcile(asking, async |key| send(Some(key), Manner::Reference).await).await
        }
        (_, "letter") => effect.at_most_once(async || send(None, Manner::Plain).await).await,
        _ => effect.at_least_once(async || send(None, Manner::Plain).await).await,
    }
}

/// What comes over a handler at its end.
async fn mood(mood: u64, cx: &Context) -> Result<(), HandlerError> {
    match mood {
        1 => Err(HandlerError::terminal("no")),
        2 if cx.attempt() < 3 => Err(HandlerError::retryable("not yet")),
        3 if cx.attempt() < 2 => panic!("a bug"),
        // Longer than it has.
        4 if cx.attempt() < 3 => {
            pause(Duration::from_secs(60)).await;
            Ok(())
        }
        5 => Err(HandlerError::unknown("nobody knows")),
        6 if cx.attempt() < 2 => Err(HandlerError::retry_after(Duration::from_secs(7), "later")),
        _ => Ok(()),
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

pub fn row(n: u64) -> RowWrite {
    RowWrite::Add {
        table: "rows".to_owned(),
        key: [("n".to_owned(), RowValue::from(n as i64))].into(),
        add: [("times".to_owned(), 1)].into(),
        floor: [].into(),
    }
}
