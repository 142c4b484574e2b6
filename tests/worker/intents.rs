//! Effects with an intent on the record: at most once, and once by asking.

use std::sync::{Arc, Mutex};

use onlyonce::context::Context;
use onlyonce::effect::Probe;
use onlyonce::error::HandlerError;
use onlyonce::handler::Job;
use onlyonce::protocol::{EffectState, RetryPolicy, Status};
use onlyonce::service::Ending;
use onlyonce::test_util::Fault;
use serde_json::Value;

use crate::kit::{Kit, Runs, SECOND, delivery, message, pause};

/// The completion is lost, as if the worker had died after the effect.
const DIES_AFTER_THE_EFFECT: [Fault; 6] = [
    Fault::None,
    Fault::None,
    Fault::LoseRequest,
    Fault::LoseRequest,
    Fault::LoseRequest,
    Fault::LoseRequest,
];

/// Sends one letter, at most once; what comes of it is `answer`'s to say.
fn letter(runs: &Runs, answer: fn(usize) -> Result<u32, HandlerError>) -> Job {
    let runs = runs.clone();
    Job::new("letter", move |_: Value, cx: Context| {
        let runs = runs.clone();
        async move {
            let effect = cx.effect("letter");
            effect.at_most_once(async || answer(runs.one_more())).await
        }
    })
    .retry(RetryPolicy::fixed(SECOND, 5))
}

fn kit(script: &[Fault], answer: fn(usize) -> Result<u32, HandlerError>) -> Kit {
    Kit::with(script.iter().copied(), |router, runs| router.with(letter(runs, answer)))
}

#[tokio::test(start_paused = true)]
async fn at_most_once_costs_three_writes_and_is_replayed() {
    let kit = kit(&[], |_| Ok(7));
    let outcome = kit.handle(delivery("letter", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!(kit.store.commits(), 3);
    let again = kit.handle(delivery("letter", "k", "{}")).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
    assert_eq!(kit.runs.count(), 1);
    assert!(kit.record("letter", "k").await.unwrap().expires_at.is_some());
}

#[tokio::test(start_paused = true)]
async fn at_most_once_never_runs_again_after_a_crash_but_is_parked() {
    let kit = kit(&DIES_AFTER_THE_EFFECT, |_| Ok(7));
    let died = kit.handle(delivery("letter", "k", "{}")).await;
    assert!(matches!(died.ending, Ending::StoreError), "{died:?}");
    let open = kit.record("letter", "k").await.unwrap();
    assert_eq!(open.effects["letter"].state, EffectState::Intent);
    assert_eq!(open.expires_at, None, "an open intent must be found however late");

    kit.wait(SECOND * 65).await;
    for _ in 0..2 {
        let failed = kit.batch(&[message("m", "letter", "k", "{}")], SECOND * 60).await;
        assert_eq!(failed, [""; 0]);
    }
    assert_eq!(kit.runs.count(), 1);
    let parked = kit.record("letter", "k").await.unwrap();
    assert_eq!((parked.status, parked.expires_at), (Status::Unknown, None));
    assert!(kit.queue.causes().iter().all(|(_, cause)| cause == "unknown"));
}

#[tokio::test(start_paused = true)]
async fn at_most_once_does_not_begin_if_its_intent_is_not_written() {
    let lost = [Fault::None, Fault::LoseRequest, Fault::LoseRequest, Fault::LoseRequest]
        .into_iter()
        .chain([Fault::LoseRequest]);
    let kit = Kit::with(lost, |router, runs| router.with(letter(runs, |_| Ok(7))));
    kit.handle(delivery("letter", "k", "{}")).await;
    assert_eq!(kit.runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_panic_or_stop_in_the_middle_is_unknown() {
    let refused = kit(&[], |_| Err(HandlerError::retryable("the line went dead")));
    let panics = kit(&[], |_| panic!("a bug"));
    for kit in [refused, panics] {
        kit.handle(delivery("letter", "k", "{}")).await;
        kit.wait(SECOND * 5).await;
        kit.handle(delivery("letter", "k", "{}")).await;
        assert_eq!(kit.record("letter", "k").await.unwrap().status, Status::Unknown);
        assert_eq!(kit.runs.count(), 1);
    }
    let stopped = Kit::with([], |router, _| {
        router.job("slow-letter", async |_: Value, cx: Context| {
            let waits = cx.clone();
            let sending = async || {
                pause(&waits, SECOND * 900).await;
                Ok::<_, HandlerError>(())
            };
            cx.effect("letter").at_most_once(sending).await
        })
    });
    let outcome = stopped.handle(delivery("slow-letter", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Unknown(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_certain_and_a_redrive_runs_it_anew() {
    let kit = kit(&[], |run| match run {
        1 => Err(HandlerError::rejected("no such address")),
        _ => Ok(7),
    });
    kit.batch(&[message("m", "letter", "k", "{}")], SECOND * 60).await;
    let failed = kit.record("letter", "k").await.unwrap();
    assert_eq!(
        (failed.status, failed.effects["letter"].state),
        (Status::Failed, EffectState::Rejected)
    );
    kit.wait(SECOND * 60).await;
    let mut redriven = message("m-2", "letter", "k", "{}");
    redriven.sent_at = Some(crate::kit::START + SECOND * 59);
    kit.batch(&[redriven], SECOND * 60).await;
    let done = kit.record("letter", "k").await.unwrap();
    assert_eq!((done.status, done.effects["letter"].generation), (Status::Completed, 1));
}

/// What the provider was asked and sent, in order, with the keys.
type Seen = Arc<Mutex<Vec<(&'static str, String)>>>;

/// Charges a card at a provider that can be asked; `says` is what it answers.
fn charge(seen: &Seen, runs: &Runs, says: fn() -> Probe<u32>) -> Job {
    let (seen, runs) = (seen.clone(), runs.clone());
    let job = Job::new("charge", move |_: Value, cx: Context| {
        let (seen, runs) = (seen.clone(), runs.clone());
        async move {
            let saw = |what, key: String| seen.lock().unwrap().push((what, key));
            let asking = async |key: onlyonce::EffectKey| {
                saw("asked", key.to_string());
                Ok::<_, HandlerError>(says())
            };
            let sending = async |key: onlyonce::EffectKey| {
                saw("sent", key.to_string());
                match runs.one_more() {
                    1 => Err(HandlerError::retryable("timed out")),
                    _ => Ok::<u32, HandlerError>(9),
                }
            };
            cx.effect("charge").settles_within(SECOND * 30).reconcile(asking, sending).await
        }
    });
    job.retry(RetryPolicy::fixed(SECOND * 10, 9))
}

async fn charged(says: fn() -> Probe<u32>, waits: u32) -> (Kit, Vec<&'static str>) {
    let seen = Seen::default();
    let kit = Kit::with([], |router, runs| router.with(charge(&seen, runs, says)));
    for _ in 0..waits {
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(SECOND * 20).await;
    }
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|(_, key)| *key == seen[0].1), "one key: {seen:?}");
    let steps = seen.iter().map(|(what, _)| *what).collect();
    (kit, steps)
}

#[tokio::test(start_paused = true)]
async fn done_is_kept_and_not_sent_again() {
    let (kit, steps) = charged(|| Probe::Done(7), 2).await;
    assert_eq!(steps, ["sent", "asked"]);
    let record = kit.record("charge", "k").await.unwrap();
    assert_eq!(record.status, Status::Completed);
    assert_eq!(record.effects["charge"].result.as_deref(), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn not_done_is_believed_only_once_no_request_can_be_under_way() {
    let (kit, steps) = charged(|| Probe::NotDone, 3).await;
    // At 20 s it may still be on its way; at 40 s not any more.
    assert_eq!(steps, ["sent", "asked", "asked", "sent"]);
    assert_eq!(kit.record("charge", "k").await.unwrap().status, Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn not_done_is_not_believed_of_a_request_that_another_clock_may_have_dated() {
    let seen = Seen::default();
    let says = || Probe::NotDone;
    let kit = Kit::with([], |router, runs| router.with(charge(&seen, runs, says)));
    kit.handle(delivery("charge", "k", "{}")).await;
    // Past the lag of 30 s by this clock, and perhaps not by that of the worker that sent it, which
    // may differ by 5 s; nor is it certain when its intent had landed.
    kit.wait(SECOND * 39).await;
    let outcome = kit.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
    let steps: Vec<_> = seen.lock().unwrap().iter().map(|(what, _)| *what).collect();
    assert_eq!(steps, ["sent", "asked"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_cannot_say_is_unknown() {
    let (kit, steps) = charged(|| Probe::Unknown, 3).await;
    assert_eq!(steps, ["sent", "asked"]);
    assert_eq!(kit.record("charge", "k").await.unwrap().status, Status::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_passes_over_an_open_intent_is_unknown() {
    let kit = Kit::with([], |router, _| {
        router.with(
            Job::new("forgetful", async |_: Value, cx: Context| {
                if cx.attempt() == 1 {
                    let ask = async |_| Ok::<Probe<u32>, HandlerError>(Probe::Unknown);
                    let send = async |_| Err(HandlerError::retryable("timed out"));
                    cx.effect("charge").reconcile(ask, send).await?;
                }
                Ok::<_, HandlerError>(())
            })
            .retry(RetryPolicy::fixed(SECOND, 5)),
        )
    });
    kit.handle(delivery("forgetful", "k", "{}")).await;
    kit.wait(SECOND).await;
    let outcome = kit.handle(delivery("forgetful", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Unknown(_)), "{outcome:?}");
}
