//! Effects declared in a handler: kept results, stable keys, bounded windows.

use std::sync::{Arc, Mutex};

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::{Job, Router};
use onlyonce::protocol::{Claim, EffectState, RetryPolicy, Status, claim};
use onlyonce::service::Ending;
use onlyonce::store::Store;
use onlyonce::test_util::Fault;
use serde_json::Value;

use crate::kit::{Kit, SECOND, claim_of, delivery};

/// Names of the effects that ran, with the keys they ran under.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// A job with two effects, which fails between them while `fails` says so.
fn onboarding(seen: &Seen, fails: &Arc<Mutex<u32>>) -> Job {
    let (seen, fails) = (seen.clone(), fails.clone());
    let job = Job::new("onboarding", move |_: Value, cx: Context| {
        let (seen, fails) = (seen.clone(), fails.clone());
        async move {
            let saw = |name: &str, key: String| seen.lock().unwrap().push((name.to_owned(), key));
            let charge: u32 = cx
                .effect("charge")
                .keyed(async |key| {
                    saw("charge", key.to_string());
                    Ok::<_, HandlerError>(7)
                })
                .await?;
            let mail: String = cx
                .effect("mail")
                .at_least_once(|| async {
                    saw("mail", String::new());
                    let mut fails = fails.lock().unwrap();
                    if *fails > 0 {
                        *fails -= 1;
                        return Err(HandlerError::retryable("451"));
                    }
                    Ok("sent".to_owned())
                })
                .await?;
            Ok::<_, HandlerError>(format!("{charge} {mail}"))
        }
    });
    job.retry(RetryPolicy::fixed(SECOND, 5))
}

fn with(job: Job) -> Kit {
    Kit::with([], |router: Router, _| router.with(job))
}

#[tokio::test(start_paused = true)]
async fn a_done_effect_is_not_run_again_by_the_next_attempt() {
    let (seen, fails) = (Seen::default(), Arc::new(Mutex::new(2)));
    let kit = with(onboarding(&seen, &fails));
    for _ in 0..3 {
        kit.handle(delivery("onboarding", "k", "{}")).await;
        kit.wait(SECOND).await;
    }
    let names: Vec<_> = seen.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, ["charge", "mail", "mail", "mail"]);
    let record = kit.record("onboarding", "k").await.unwrap();
    assert_eq!(record.status, Status::Completed);
    assert_eq!(record.effects["charge"].state, EffectState::Done);
}

#[tokio::test(start_paused = true)]
async fn n_effects_cost_n_plus_one_writes() {
    let (seen, fails) = (Seen::default(), Arc::new(Mutex::new(0)));
    let kit = with(onboarding(&seen, &fails));
    let outcome = kit.handle(delivery("onboarding", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    // The claim; the first effect's result before the second; the completion with the second's.
    assert_eq!(kit.store.commits(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_effects_key_is_the_same_in_every_attempt() {
    let seen = Seen::default();
    let keys = seen.clone();
    let kit = with(
        Job::new("charge", move |_: Value, cx: Context| {
            let seen = keys.clone();
            async move {
                cx.effect("charge")
                    .keyed(|key| async move {
                        seen.lock().unwrap().push((key.to_string(), String::new()));
                        Err::<(), _>(HandlerError::retryable("timed out"))
                    })
                    .await
            }
        })
        .retry(RetryPolicy::fixed(SECOND, 3)),
    );
    for _ in 0..3 {
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(SECOND).await;
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|entry| *entry == seen[0] && entry.0.len() == 32), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_used_twice_in_one_attempt_is_an_error() {
    let kit = with(Job::new("twice", |_: Value, cx: Context| async move {
        let done = async || Ok::<_, HandlerError>(1);
        cx.effect("mail").at_least_once(done).await?;
        cx.effect("mail").at_least_once(done).await
    }));
    let outcome = kit.handle(delivery("twice", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    assert!(outcome.error.unwrap().contains("begun twice"));
}

#[tokio::test(start_paused = true)]
async fn past_the_providers_window_a_re_run_is_unknown_and_not_sent() {
    let sent = Arc::new(Mutex::new(0));
    let count = sent.clone();
    let kit = with(
        Job::new("charge", move |_: Value, cx: Context| {
            let sent = count.clone();
            async move {
                cx.effect("charge")
                    .window(SECOND * 60)
                    .keyed(|_| async move {
                        *sent.lock().unwrap() += 1;
                        Err::<(), _>(HandlerError::retryable("timed out"))
                    })
                    .await
            }
        })
        .retry(RetryPolicy::fixed(SECOND * 40, 5)),
    );
    for _ in 0..3 {
        kit.handle(delivery("charge", "k", "{}")).await;
        kit.wait(SECOND * 40).await;
    }
    assert_eq!(*sent.lock().unwrap(), 2);
    assert_eq!(kit.record("charge", "k").await.unwrap().status, Status::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_kept_result_is_given_back_however_late() {
    let kit = with(Job::new("late", async |_: Value, cx: Context| {
        let charge = cx.effect("charge").window(SECOND * 60);
        let charge: u32 = charge.keyed(async |_| Ok::<_, HandlerError>(7)).await?;
        match cx.attempt() {
            1 => Err(HandlerError::retry_after(SECOND * 600, "not yet")),
            _ => Ok(charge),
        }
    }));
    kit.handle(delivery("late", "k", "{}")).await;
    kit.wait(SECOND * 600).await;
    let outcome = kit.handle(delivery("late", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_context_outlives_its_attempt_without_power() {
    let escaped: Arc<Mutex<Option<Context>>> = Arc::default();
    let out = escaped.clone();
    let kit = with(Job::new("leaky", move |_: Value, cx: Context| {
        let out = out.clone();
        async move {
            *out.lock().unwrap() = Some(cx);
            Ok::<_, HandlerError>(())
        }
    }));
    kit.handle(delivery("leaky", "k", "{}")).await;
    let cx = escaped.lock().unwrap().take().unwrap();
    let late = cx.effect("late").at_least_once(async || Ok::<_, HandlerError>(1)).await;
    assert!(late.unwrap_err().message().contains("the attempt is over"));
}

/// A job that gives its second effect a second, and completes without it.
fn hasty(seen: &Seen) -> Job {
    let seen = seen.clone();
    Job::new("hasty", move |_: Value, cx: Context| {
        let seen = seen.clone();
        async move {
            let saw = |name: &str| {
                seen.lock().unwrap().push((name.to_owned(), String::new()));
                Ok::<_, HandlerError>(())
            };
            cx.effect("charge").at_least_once(async || saw("charge")).await?;
            let mail = cx.effect("mail").at_least_once(async || saw("mail"));
            // The mail is not worth waiting for, says this handler.
            let _ = tokio::time::timeout(SECOND, mail).await;
            Ok::<_, HandlerError>(())
        }
    })
}

fn names(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_effect_does_not_begin_once_the_claim_is_known_to_be_lost() {
    let seen = Seen::default();
    let robbed = seen.clone();
    let store: Arc<Mutex<Option<Arc<dyn Store>>>> = Arc::default();
    let kit = with(Job::new("robbed", {
        let store = store.clone();
        move |_: Value, cx: Context| {
            let (seen, store) = (robbed.clone(), store.lock().unwrap().clone().unwrap());
            async move {
                let saw = |name: &str| seen.lock().unwrap().push((name.to_owned(), String::new()));
                cx.effect("charge")
                    .at_least_once(async || {
                        saw("charge");
                        // Meanwhile another worker, whose clock is ahead, takes over.
                        let (record, later) = (store.load(cx.id()).await, cx.now() + SECOND * 600);
                        let request = claim_of("robbed", "k", later);
                        let Claim::Take { write, .. } = claim(record.unwrap(), &request, later)
                        else {
                            panic!("the lease is over, by that clock")
                        };
                        store.commit(&write, &[]).await.unwrap();
                        Ok::<_, HandlerError>(())
                    })
                    .await?;
                let mail = async || {
                    saw("mail");
                    Ok::<_, HandlerError>(())
                };
                cx.effect("mail").at_least_once(mail).await
            }
        }
    }));
    *store.lock().unwrap() = Some(kit.store.clone());
    let outcome = kit.handle(delivery("robbed", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::LostLease), "{outcome:?}");
    assert_eq!(names(&seen), ["charge"]);
}

#[tokio::test(start_paused = true)]
async fn an_effect_called_off_while_results_are_written_does_not_cost_the_claim() {
    // The first effect's result lands or not, and the handler does not wait for the answer.
    for fault in [Fault::HangAfter, Fault::Hang] {
        let seen = Seen::default();
        let kit = Kit::with([Fault::None, fault], |router, _| router.with(hasty(&seen)));
        let outcome = kit.handle(delivery("hasty", "k", "{}")).await;
        assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
        assert_eq!(names(&seen), ["charge"]);
        let record = kit.record("hasty", "k").await.unwrap();
        assert_eq!(record.effects["charge"].state, EffectState::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_the_store_refuses_to_keep_is_kept_with_the_end() {
    let seen = Seen::default();
    let kit = Kit::with([Fault::None, Fault::Refuse], |router, _| router.with(hasty(&seen)));
    let outcome = kit.handle(delivery("hasty", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    assert_eq!(kit.record("hasty", "k").await.unwrap().effects.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_whose_serializer_panics_does_not_fail_an_effect_that_has_happened() {
    let kit = with(Job::new("odd", |_: Value, cx: Context| async move {
        cx.effect("odd").at_least_once(async || Ok::<_, HandlerError>(Odd)).await.map(drop)
    }));
    let outcome = kit.handle(delivery("odd", "k", "{}")).await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
}

#[derive(serde::Deserialize)]
struct Odd;

impl serde::Serialize for Odd {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("in the serializer")
    }
}
