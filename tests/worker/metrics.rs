//! What a worker counts and measures of its messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use onlyonce::context::Context;
use onlyonce::error::HandlerError;
use onlyonce::handler::{Job, Router};
use onlyonce::service::{Deadline, Worker};
use onlyonce::store::{MemoryStore, Store};
use onlyonce::telemetry::{Count, Latency, Meter};
use onlyonce::test_util::Fault;
use serde_json::Value;

use crate::claims::{claimed_by_a_dead_worker, overtaken};
use crate::kit::{Kit, SECOND, START, delivery, message, pause};

/// What was counted, by metric and cause; what was not is not in it.
fn counted(meter: &Meter) -> BTreeMap<String, u64> {
    let counts = Count::ALL.iter().zip(meter.counts()).filter(|(_, so_far)| *so_far > 0);
    let name = |count: &Count| match count.name() {
        (name, None) => name.to_owned(),
        (name, Some(cause)) => format!("{name}/{cause}"),
    };
    counts.map(|(count, so_far)| (name(count), so_far)).collect()
}

fn is(meter: &Meter, expected: &[(&str, u64)]) {
    let expected = expected.iter().map(|(name, so_far)| ((*name).to_owned(), *so_far)).collect();
    assert_eq!(counted(meter), expected);
}

fn taken(meter: &Meter, latency: Latency) -> Vec<u32> {
    meter.take(latency).collect()
}

#[tokio::test(start_paused = true)]
async fn fresh_messages_and_their_copies() {
    let kit = Kit::new([]);
    kit.wait(SECOND / 20).await;
    let messages =
        [("1", "a"), ("2", "b"), ("3", "a")].map(|(id, key)| message(id, "echo", key, "{}"));
    assert!(kit.batch(&messages, SECOND * 60).await.is_empty());
    let meter = kit.worker.meter();
    is(meter, &[("Claimed", 2), ("Completed", 2), ("Replayed", 1)]);
    assert_eq!(taken(meter, Latency::Age), [50, 50], "of what was completed, since it was sent");
    assert_eq!(taken(meter, Latency::Store).len(), 5, "two writes each, and one for the copy");
    assert_eq!(taken(meter, Latency::Effect), [0; 0]);
    assert_eq!(taken(meter, Latency::Store), [0; 0], "what is taken is gone");
}

#[tokio::test(start_paused = true)]
async fn another_attempt_under_way_is_busy() {
    let kit = Kit::new([]);
    claimed_by_a_dead_worker(&kit, "echo", "k", "{}").await;
    kit.batch(&[message("m", "echo", "k", "{}")], SECOND * 60).await;
    is(kit.worker.meter(), &[("Busy", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_retried_until_it_has_failed_and_is_in_quarantine() {
    let kit = Kit::new([]);
    let message = [message("m", "stumble", "k", "{}")];
    assert_eq!(kit.batch(&message, SECOND * 60).await, ["m"]);
    is(kit.worker.meter(), &[("Claimed", 1), ("Retried", 1)]);
    assert_eq!(kit.batch(&message, SECOND * 60).await, ["m"], "it is not due yet");
    for _ in 0..2 {
        kit.wait(SECOND * 11).await;
        kit.batch(&message, SECOND * 60).await;
    }
    let failed = [("Claimed", 3), ("Failed", 1), ("Quarantined/failed", 1), ("Retried", 2)];
    is(kit.worker.meter(), &failed);
    assert_eq!(taken(kit.worker.meter(), Latency::Age), [0; 0], "it was never completed");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_in_quarantine_is_not_counted_there() {
    let mut kit = Kit::new([]);
    kit.queue.no_quarantine = true;
    kit.batch(&[message("m", "refuse", "k", "{}")], SECOND * 60).await;
    is(kit.worker.meter(), &[("Claimed", 1), ("Failed", 1)]);
}

#[tokio::test(start_paused = true)]
async fn quarantine_is_counted_by_cause() {
    let kit = Kit::new([]);
    let messages = [
        message("first", "echo", "k", "{\"amount\":1}"),
        message("second", "echo", "k", "{\"amount\":2}"),
        message("no key", "echo", "", "{}"),
    ];
    assert!(kit.batch(&messages, SECOND * 60).await.is_empty());
    let causes = [("Quarantined/mismatch", 1), ("Quarantined/undecodable", 1)];
    is(kit.worker.meter(), &[&[("Claimed", 1), ("Completed", 1)], &causes[..]].concat());
}

#[tokio::test(start_paused = true)]
async fn an_effect_whose_outcome_cannot_be_known() {
    let kit = Kit::with([], |router, _| {
        router.job("once", |_: Value, cx: Context| async move {
            let sending = || async { Err::<(), _>(HandlerError::retryable("no answer came")) };
            cx.effect("call").at_most_once(sending).await
        })
    });
    kit.batch(&[message("m", "once", "k", "{}")], SECOND * 60).await;
    let unknown = [("Claimed", 1), ("Quarantined/unknown", 1), ("Unknown", 1)];
    is(kit.worker.meter(), &unknown);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let jobs = Router::new().with(overtaken(memory.clone(), Ok(())));
    let worker = Worker::builder(memory).build(jobs).unwrap();
    let now = worker.clock().now();
    worker.handle(delivery("overtaken", "k", "{}"), Deadline::new(now, now + SECOND * 60)).await;
    is(worker.meter(), &[("Claimed", 1), ("LostLease", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_say() {
    let kit = Kit::new([Fault::LoseRequest; 4]);
    kit.batch(&[message("m", "echo", "k", "{}")], SECOND * 60).await;
    is(kit.worker.meter(), &[("StoreError", 1)]);
    assert_eq!(taken(kit.worker.meter(), Latency::Store).len(), 4, "each try is measured");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_measured_until_it_is_given_up() {
    let kit = Kit::new([Fault::Hang]);
    kit.handle(delivery("echo", "k", "{}")).await;
    let waits = taken(kit.worker.meter(), Latency::Store);
    assert!(waits.iter().any(|ms| *ms > 50_000), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn an_effect_is_measured_also_if_its_handler_is_stopped_in_it() {
    let kit = Kit::with([], |router, _| {
        let calls = |takes| {
            move |_: Value, cx: Context| async move {
                let call = cx.clone();
                let sending = || async move {
                    pause(&call, takes).await;
                    Ok::<_, HandlerError>(())
                };
                cx.effect("call").at_least_once(sending).await
            }
        };
        router
            .with(Job::new("quick", calls(SECOND / 10)))
            .with(Job::new("endless", calls(SECOND * 3600)))
    });
    kit.handle(delivery("quick", "k", "{}")).await;
    assert_eq!(taken(kit.worker.meter(), Latency::Effect), [100]);
    kit.handle_within(delivery("endless", "k", "{}"), SECOND * 10).await;
    let until_stopped = taken(kit.worker.meter(), Latency::Effect);
    assert_eq!(until_stopped.len(), 1);
    assert!((8_500..9_500).contains(&until_stopped[0]), "{until_stopped:?}");
}

#[tokio::test(start_paused = true)]
async fn clones_of_a_worker_count_together_and_age_is_from_when_a_message_was_sent() {
    let kit = Kit::new([]);
    kit.wait(SECOND).await;
    let clone = kit.worker.clone();
    clone.handle(delivery("echo", "k", "{}"), Deadline::new(START, START + SECOND * 60)).await;
    is(kit.worker.meter(), &[("Claimed", 1), ("Completed", 1)]);
    let age = taken(kit.worker.meter(), Latency::Age);
    assert!(age.len() == 1 && age[0].abs_diff(1000) <= 10, "{age:?}");
}
