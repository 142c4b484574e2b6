//! Keyed effects: one key and one request until the provider has refused for certain, within the
//! provider's window, and by asking where the key cannot tell.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::context::Context;
use onlyonce::effect::Probe;
use onlyonce::error::HandlerError;
use onlyonce::handler::Job;
use onlyonce::protocol::{EffectState, RetryPolicy, Status};
use onlyonce::service::Ending;
use onlyonce::test_util::Fault;
use serde_json::Value;

use crate::kit::{Kit, SECOND, START, delivery};

/// The keys that reached the provider.
type Keys = Arc<Mutex<Vec<String>>>;

const WINDOW: Duration = Duration::from_secs(100);
const DECLINED: fn() -> HandlerError = || HandlerError::rejected("card_declined");
const LOST: fn() -> HandlerError = || HandlerError::retryable("no answer");

/// Charges; what the nth request comes to is `answer`'s to say.
fn charge(keys: &Keys, answer: fn(usize) -> Result<u32, HandlerError>) -> Job {
    let keys = keys.clone();
    Job::new("charge", move |_: Value, cx: Context| {
        let keys = keys.clone();
        async move {
            let send = async |key: onlyonce::EffectKey| {
                let mut keys = keys.lock().unwrap();
                keys.push(key.to_string());
                answer(keys.len())
            };
            cx.effect("charge").window(WINDOW).keyed(send).await
        }
    })
    .retry(RetryPolicy::fixed(SECOND, 3))
}

fn kit(script: &[Fault], answer: fn(usize) -> Result<u32, HandlerError>) -> (Kit, Keys) {
    let keys = Keys::default();
    let kit = Kit::with(script.iter().copied(), |router, _| router.with(charge(&keys, answer)));
    (kit, keys)
}

/// The message as a person sends it again from the dead letters.
async fn redrive(kit: &Kit) -> Ending {
    kit.wait(SECOND * 10).await;
    let mut again = delivery("charge", "k", "{}");
    again.enqueued_at = Some(kit.worker.clock().now());
    kit.handle(again).await.ending
}

#[tokio::test(start_paused = true)]
async fn a_declined_card_redriven_has_a_new_key() {
    let (kit, keys) = kit(&[], |n| if n == 1 { Err(DECLINED()) } else { Ok(7) });
    let declined = kit.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(declined.ending, Ending::Failed(_)), "{declined:?}");
    let record = kit.record("charge", "k").await.unwrap();
    assert_eq!(record.effects["charge"].state, EffectState::Rejected);

    assert!(matches!(redrive(&kit).await, Ending::Completed(_)));
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1]);
    let record = kit.record("charge", "k").await.unwrap();
    assert_eq!(record.effects["charge"].generation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_redriven_keeps_its_key() {
    let (kit, keys) = kit(&[], |n| if n < 4 { Err(LOST()) } else { Ok(7) });
    for _ in 0..3 {
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(SECOND).await;
    }
    let failed = kit.record("charge", "k").await.unwrap();
    assert_eq!(failed.status, Status::Failed, "spent, and as yet nobody's to decide");
    assert_eq!(failed.effects["charge"].state, EffectState::Sent);
    assert_eq!(failed.effects["charge"].first_sent, START);

    assert!(matches!(redrive(&kit).await, Ending::Completed(_)));
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 4);
    assert!(keys.iter().all(|key| *key == keys[0]));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_is_still_a_refusal_of_that_key() {
    let (kit, keys) = kit(&[], |n| match n {
        1 => Err(LOST()),
        2 => Err(DECLINED()),
        _ => Ok(7),
    });
    kit.handle(delivery("charge", "k", "{}")).await;
    kit.wait(SECOND).await;
    kit.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(redrive(&kit).await, Ending::Completed(_)));
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test(start_paused = true)]
async fn what_was_turned_away_after_a_lost_answer_keeps_its_key() {
    // A gateway's 401 says nothing of the request that came through before.
    let (kit, keys) = kit(&[], |n| match n {
        1 => Err(LOST()),
        2 => Err(HandlerError::terminal("401").not_sent()),
        _ => Ok(7),
    });
    kit.handle(delivery("charge", "k", "{}")).await;
    kit.wait(SECOND).await;
    let failed = kit.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(failed.ending, Ending::Failed(_)), "{failed:?}");
    assert!(matches!(redrive(&kit).await, Ending::Completed(_)));
    let keys = keys.lock().unwrap().clone();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_a_refusal_at_first_and_unknown_after_an_earlier_send() {
    let (first, _) = kit(&[], |_| Err(HandlerError::mismatch("422")));
    let failed = first.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(failed.ending, Ending::Failed(_)), "{failed:?}");

    let (later, keys) =
        kit(&[], |n| Err(if n == 1 { LOST() } else { HandlerError::mismatch("422") }));
    later.handle(delivery("charge", "k", "{}")).await;
    later.wait(SECOND).await;
    let unknown = later.handle(delivery("charge", "k", "{}")).await;
    assert!(matches!(unknown.ending, Ending::Unknown(_)), "{unknown:?}");
    assert_eq!(keys.lock().unwrap().len(), 2);
}

/// The completion is lost, as if the worker had died after the effect.
const DIES_AFTER_THE_EFFECT: [Fault; 5] =
    [Fault::None, Fault::LoseRequest, Fault::LoseRequest, Fault::LoseRequest, Fault::LoseRequest];

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_key_is_the_same_within_the_window_and_nothing_is_sent_after_it() {
    for (wait, sent, status) in [(70, 2, Status::Completed), (200, 1, Status::Unknown)] {
        let (kit, keys) = kit(&DIES_AFTER_THE_EFFECT, |_| Ok(7));
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(SECOND * wait).await;
        kit.handle(delivery("charge", "k", "{}")).await;
        let keys = keys.lock().unwrap().clone();
        assert_eq!(keys.len(), sent);
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(kit.record("charge", "k").await.unwrap().status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_before_its_effect_is_redriven_however_late() {
    let keys = Keys::default();
    let kit = Kit::with([], |router, runs| {
        let (runs, keys) = (runs.clone(), keys.clone());
        router.with(Job::new("charge", move |_: Value, cx: Context| {
            let (runs, keys) = (runs.clone(), keys.clone());
            async move {
                if runs.one_more() == 1 {
                    return Err(HandlerError::terminal("a bug, since mended"));
                }
                let send = async |key: onlyonce::EffectKey| {
                    keys.lock().unwrap().push(key.to_string());
                    Ok::<_, HandlerError>(7)
                };
                cx.effect("charge").window(WINDOW).keyed(send).await
            }
        }))
    });
    kit.handle(delivery("charge", "k", "{}")).await;
    kit.wait(WINDOW * 3).await;
    assert!(matches!(redrive(&kit).await, Ending::Completed(_)));
    assert_eq!(keys.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_request_under_the_same_key_is_unknown_and_not_sent() {
    let keys = Keys::default();
    let seen = keys.clone();
    let kit = Kit::with([], |router, runs| {
        let runs = runs.clone();
        let job = Job::new("charge", move |_: Value, cx: Context| {
            let (seen, runs) = (seen.clone(), runs.clone());
            async move {
                // Made of more than the payload: a bug.
                let request = serde_json::json!({ "cents": 500, "try": runs.one_more() });
                let send = async |key: onlyonce::EffectKey| {
                    seen.lock().unwrap().push(key.to_string());
                    Err::<u32, _>(LOST())
                };
                cx.effect("charge").request(&request).keyed(send).await
            }
        });
        router.with(job.retry(RetryPolicy::fixed(SECOND, 3)))
    });
    kit.handle(delivery("charge", "order-42", "{}")).await;
    kit.wait(SECOND).await;
    let unknown = kit.handle(delivery("charge", "order-42", "{}")).await;
    assert!(matches!(unknown.ending, Ending::Unknown(_)), "{unknown:?}");
    assert!(unknown.error.unwrap().contains("with another request under this key"));
    assert_eq!(keys.lock().unwrap().len(), 1);
}

/// Charges with a provider that can be asked; how it answers is `probe`'s to say.
fn asking(
    script: &[Fault],
    answer: fn(usize) -> Result<u32, HandlerError>,
    probe: fn(usize) -> Probe<u32>,
) -> (Kit, Keys) {
    let (keys, asked) = (Keys::default(), Arc::new(Mutex::new(0)));
    let seen = keys.clone();
    let job = Job::new("charge", move |_: Value, cx: Context| {
        let (seen, asked) = (seen.clone(), asked.clone());
        async move {
            let send = async |key: onlyonce::EffectKey| {
                let mut seen = seen.lock().unwrap();
                seen.push(key.to_string());
                answer(seen.len())
            };
            let ask = async |_| {
                let mut asked = asked.lock().unwrap();
                *asked += 1;
                Ok::<_, HandlerError>(probe(*asked))
            };
            let effect = cx.effect("charge").window(WINDOW).settles_within(SECOND * 10);
            effect.keyed_or_ask(ask, send).await
        }
    });
    let job = job.retry(RetryPolicy::fixed(SECOND, 5));
    (Kit::with(script.iter().copied(), |router, _| router.with(job)), keys)
}

#[tokio::test(start_paused = true)]
async fn past_the_window_the_provider_is_asked() {
    for (probe, sent, status) in [
        ((|_| Probe::Done(7)) as fn(usize) -> Probe<u32>, 1, Status::Completed),
        (|_| Probe::NotDone, 2, Status::Completed),
        (|_| Probe::Unknown, 1, Status::Unknown),
    ] {
        let (kit, keys) = asking(&DIES_AFTER_THE_EFFECT, |_| Ok(7), probe);
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(WINDOW * 3).await;
        kit.handle(delivery("charge", "k", "{}")).await;
        let keys = keys.lock().unwrap().clone();
        assert_eq!(keys.len(), sent);
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(kit.record("charge", "k").await.unwrap().status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_can_no_longer_tell_leads_to_asking_and_never_to_a_new_key() {
    // A failure of the provider's own, replayed under its key ever after.
    let answer = |n| Err(if n == 1 { LOST() } else { HandlerError::unknown("500, replayed") });
    for (probe, status) in [
        ((|_| Probe::Done(7)) as fn(usize) -> Probe<u32>, Status::Completed),
        // At first it may have been under way; at last it was not done, and its key is spent.
        (|_| Probe::NotDone, Status::Unknown),
        (|_| Probe::Unknown, Status::Unknown),
    ] {
        let (kit, keys) = asking(&[], answer, probe);
        for _ in 0..3 {
            kit.handle(delivery("charge", "k", "{}")).await;
            kit.wait(SECOND * 10).await;
        }
        let keys = keys.lock().unwrap().clone();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(kit.record("charge", "k").await.unwrap().status, status);
    }
}
