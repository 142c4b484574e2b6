//! `dev`: messages through a real worker on this machine, with copies and kills, and a verdict.
//!
//! The queue, Lambda's poller and the outside world are local; event, front, service, store and
//! jobs are those of production. Time runs faster, so that visibility timeouts pass in seconds.

pub mod command;
mod kill;
mod ledger;
mod receiver;
mod report;
mod watched;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BoxError;
use crate::front::{AttributeValue, Message, QUARANTINE_ATTRIBUTE, answer};
use crate::handler::Router;
use crate::local::{FastClock, Invocation, LocalQueue, Poller, QueueSettings};
use crate::runtime::Clock;
use crate::service::Worker;
use crate::store::Store;

use self::kill::Kills;
use self::ledger::Ledger;
pub use self::receiver::Receiver;
pub use self::report::{JobReport, Report, Timeline, Verdict};
use self::watched::WatchedStore;
use super::MessageLine;

/// How many times faster than the machine's clock time runs, unless the real world is called: it
/// takes its time, and would run into every timeout.
const SPEED: u32 = 10;
/// An invocation's time; its messages are hidden a little longer.
const TIMEOUT: Duration = Duration::from_secs(60);
const VISIBILITY: Duration = Duration::from_secs(70);
/// The deployment's name in the store.
const NAMESPACE: &str = "dev";
/// How often dead letters are sent through again, as an operator would.
const REDRIVES: usize = 3;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Extra copies of each message.
    pub duplicates: usize,
    /// The chance that an invocation is killed, 0..1.
    pub crash: f64,
    /// Decides who is killed, and where.
    pub seed: u64,
}

/// Runs these messages to the end. `receiver` is what the jobs' requests reach, if they do not go
/// to the real world; `progress` is told how many of all messages are done, now and then.
pub async fn run(
    lines: &[MessageLine],
    plan: &Plan,
    jobs: &Router,
    store: Arc<dyn Store>,
    receiver: Option<&Receiver>,
    progress: &(dyn Fn(usize, usize) + Send + Sync),
) -> Result<Report, BoxError> {
    // Told now: in each invocation it would pass for a crash, and its messages come again for ever.
    Worker::builder(store.clone()).build(jobs.clone())?;
    let clock = FastClock::new(if receiver.is_some() { SPEED } else { 1 });
    let ledger = Arc::new(Ledger::new(clock, jobs.message_rules().clone()));
    if let Some(receiver) = receiver {
        receiver.report_to(ledger.clone());
    }
    let settings =
        QueueSettings { name: "dev".to_owned(), visibility: VISIBILITY, max_receives: 1000 };
    let queue = LocalQueue::new(settings, Arc::new(clock));
    let mut sent = 0;
    for copy in 0..=plan.duplicates {
        for line in lines {
            let message = line.message(jobs);
            ledger.sent(&message, copy);
            queue.send_message(message);
            sent += 1;
        }
    }
    let kills = Kills::new(plan.crash, plan.seed);
    // Small batches, so that a kill takes few along.
    let batch = if plan.crash > 0.0 { 3 } else { 10 };
    let poller = Poller { timeout: TIMEOUT, batch, ..Poller::default() };
    let invoke = async |invocation: &Invocation| {
        let kill = kills.next();
        ledger.delivered(invocation.messages());
        let watched = WatchedStore::new(store.clone(), ledger.clone(), kill.clone());
        let worker = Worker::builder(watched)
            .clock(Arc::new(clock))
            .namespace(NAMESPACE)
            .layer(kill.layer(clock))
            .outside(receiver.map(Receiver::address))
            .build(jobs.clone())
            .ok()?;
        let answered = tokio::select! {
            answered = answer(&worker, &queue, &invocation.event, invocation.hard) => answered.ok(),
            boundary = kill.killed() => {
                ledger.killed(kill.victims(), boundary);
                ledger.killed_unsure(&kill.unsure());
                None
            }
        };
        progress(sent - queue.len().min(sent), sent);
        answered.and_then(|response| serde_json::to_value(response).ok())
    };
    let mut drained = poller.run(&queue, invoke).await;
    let mut redriven = 0;
    for _ in 0..REDRIVES {
        // Only what kills have used up is worth another try; the rest failed for its own reasons.
        if plan.crash == 0.0 || queue.dead().is_empty() {
            break;
        }
        // A failed record is re-opened by messages sent clearly after its failure.
        clock.sleep_until(clock.now() + Duration::from_secs(6)).await;
        redriven += queue.redrive();
        let again = poller.run(&queue, invoke).await;
        drained.deliveries += again.deliveries;
        drained.dead = again.dead;
    }
    // The records have the last word: a write may have landed that nobody lived to see.
    let mut stories = ledger.stories();
    for (id, story) in &mut stories {
        story.status = store.load(id).await?.map(|record| record.status);
    }
    let stories: Vec<_> = stories.into_values().collect();
    let dead_letters = dead_letters(&queue.dead());
    Ok(Report::new(&stories, plan, drained, redriven, dead_letters, receiver.is_some()))
}

/// Why messages are dead letters, and how many for each reason.
fn dead_letters(dead: &[Message]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for message in dead {
        let mark = match message.attributes.get(QUARANTINE_ATTRIBUTE).map(|mark| &mark.value) {
            Some(AttributeValue::Text(mark)) => serde_json::from_str(mark).unwrap_or_default(),
            _ => serde_json::Value::Null,
        };
        let said = |field| mark.get(field).and_then(serde_json::Value::as_str);
        let reason = match (said("cause"), said("job"), said("error").unwrap_or_default()) {
            (Some(cause), Some(job), error) => format!("{cause}, {job}: {error}"),
            (Some(cause), None, error) => format!("{cause}: {error}"),
            (None, ..) => "received too often".to_owned(),
        };
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::{Job, Reply};
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn jobs_that_make_no_worker_are_refused_before_anything_runs() {
        let job = Job::from_calls("a", |_| async { Ok(Reply::of(&())) });
        let jobs = Router::new().with(job.clone()).with(job);
        let line = r#"{"job": "a", "idempotency-key": "k", "body": "\"text\""}"#;
        let lines = [MessageLine::read(line).unwrap()];
        let plan = Plan { duplicates: 0, crash: 0.0, seed: 1 };
        let ended = run(&lines, &plan, &jobs, Arc::new(MemoryStore::new()), None, &|_, _| {});
        assert!(ended.await.unwrap_err().to_string().contains("\"a\" is there twice"));
    }
}
