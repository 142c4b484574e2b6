//! A batch: messages side by side, those of one FIFO group one after another, those of one key
//! never at once; and for each message one disposition.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{Instrument, error, warn};

use super::asked::{Asked, asked};
use super::hiding::Hiding;
use super::lanes::SideBySide;
use super::log;
use super::message::Message;
use super::queue::{Delay, Mark, Placed, Queue};
use super::span;
use crate::protocol::{Held, MAX_RETRY_AFTER, RecordId, Timestamp};
use crate::runtime::before;
use crate::service::{
    Around, Cause, Deadline, Disposition, Ending, Hidden, Outcome, Worker, short,
};

/// Runs a batch and answers the ids of the messages that must be delivered again, each once.
///
/// Every message that is not certain to be done, or in quarantine, is in the answer; whatever is
/// unfinished as the deadline nears is.
pub async fn run(
    worker: &Worker,
    queue: &dyn Queue,
    messages: &[Message],
    deadline: Deadline,
) -> Vec<String> {
    told(worker, queue, messages, deadline).await.again
}

/// What a batch came to.
pub(super) struct Told {
    /// The ids of the messages that must be delivered again.
    pub again: Vec<String>,
    /// Of one message at least the store did not say what became of it.
    #[cfg_attr(not(feature = "lambda"), allow(dead_code, reason = "for those who poll"))]
    pub is_store_out: bool,
}

/// The same, and tells how the store was.
pub(super) async fn told(
    worker: &Worker,
    queue: &dyn Queue,
    messages: &[Message],
    deadline: Deadline,
) -> Told {
    let received = worker.clock().now();
    let batch = Batch {
        worker,
        queue,
        deadline,
        waiting: AtomicUsize::new(0),
        keys: Mutex::default(),
        is_store_out: AtomicBool::new(false),
    };
    let lanes = lanes(messages).into_iter().map(|lane| batch.lane(messages, lane));
    let mut lanes = SideBySide::new(lanes, worker.concurrency(), &batch.waiting);
    let mut retries: BTreeMap<usize, Option<Timestamp>> =
        (0..messages.len()).map(|at| (at, None)).collect();
    // Every lane keeps to the deadline by itself; should one not, the answer is given without it.
    while let Some(Some(ended)) = before(worker.clock(), deadline.told, lanes.next()).await {
        for (at, answer) in ended {
            match answer {
                Answer::Ack => retries.remove(&at),
                Answer::Retry(when) => retries.insert(at, when),
            };
        }
    }
    drop(lanes);
    batch.delay(messages, &retries, received).await;

    let mut reported = HashSet::new();
    let ids = retries.into_keys().filter_map(|at| messages.get(at)).map(|message| &message.id);
    let again = ids.filter(|id| reported.insert(id.as_str())).cloned().collect();
    Told { again, is_store_out: batch.is_store_out.into_inner() }
}

/// Which messages wait for which: each of a standard queue for none, each of a FIFO group, or of an
/// outbox's order key, for the one before it.
pub(super) fn lanes(messages: &[Message]) -> Vec<Vec<usize>> {
    let mut lanes: Vec<Vec<usize>> = Vec::new();
    let mut groups: HashMap<&str, usize> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        if let Some(group) = message.order() {
            let lane = *groups.entry(group).or_insert(lanes.len());
            if let Some(lane) = lanes.get_mut(lane) {
                lane.push(at);
                continue;
            }
        }
        lanes.push(vec![at]);
    }
    lanes
}

/// A message that waits, counted as long as it does.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a message's queue is told in the end.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// It is done, or in quarantine.
    Ack,
    /// It must come again: at this time, or whenever its visibility timeout ends.
    Retry(Option<Timestamp>),
}

struct Batch<'a> {
    worker: &'a Worker,
    queue: &'a dyn Queue,
    deadline: Deadline,
    /// Messages that wait for another of their key, and so do not run.
    waiting: AtomicUsize,
    keys: Mutex<HashMap<RecordId, Arc<tokio::sync::Mutex<()>>>>,
    is_store_out: AtomicBool,
}

impl Batch<'_> {
    /// Runs messages in order, up to the first that must come again: what follows it in its group
    /// must not overtake it, and becomes visible with it.
    async fn lane(&self, messages: &[Message], lane: Vec<usize>) -> Vec<(usize, Answer)> {
        let mut ended = Vec::with_capacity(lane.len());
        let mut stopped: Option<Option<Timestamp>> = None;
        let hiding = self.hiding(lane.iter().filter_map(|at| messages.get(*at)).collect());
        for at in lane {
            let Some(message) = messages.get(at) else {
                continue;
            };
            let answer = match stopped {
                Some(when) => Answer::Retry(when),
                None => {
                    if let Some(hiding) = &hiding {
                        hiding.in_turn().await;
                    }
                    self.message(message, hiding.as_ref()).await
                }
            };
            if let Answer::Retry(when) = answer {
                stopped = Some(when);
            }
            ended.push((at, answer));
        }
        ended
    }

    /// What hides the messages of a lane while its jobs run, where claims are renewed.
    fn hiding<'m>(&'m self, messages: Vec<&'m Message>) -> Option<Hiding<'m>> {
        Hiding::new(self.worker.clock(), self.queue, self.deadline, messages)
    }

    /// A bound for what the queue or the store is told of one message.
    fn soon(&self, at: Timestamp) -> Timestamp {
        self.deadline.soon(at, self.worker.clock().now())
    }

    async fn message(&self, message: &Message, hiding: Option<&Hiding<'_>>) -> Answer {
        let clock = self.worker.clock();
        let begun = clock.now();
        let outcome = self.run(message, hiding).await;
        if matches!(outcome.ending, Ending::StoreError) {
            self.is_store_out.store(true, Ordering::Relaxed);
        }
        let (answer, quarantined) = match outcome.disposition(clock.now()) {
            Disposition::Ack => (Answer::Ack, None),
            Disposition::Retry(when) => (Answer::Retry(when), None),
            Disposition::Quarantine { cause, mark } => {
                if self.quarantine(message, &outcome, cause).await {
                    self.worker.meter().count(cause.count());
                    if let Some(parked) = mark {
                        self.mark(message, &parked).await;
                    }
                    (Answer::Ack, Some(cause))
                } else {
                    (Answer::Retry(None), None)
                }
            }
        };
        log::ended(message, &outcome, quarantined, answer, begun, clock.now());
        answer
    }

    async fn run(&self, message: &Message, hiding: Option<&Hiding<'_>>) -> Outcome {
        let delivery = match asked(message, self.worker.message_rules()) {
            Asked::Job(delivery) => delivery,
            Asked::Nothing => return Outcome::of(Ending::Ignored),
            Asked::Unclear(why) => return Outcome::of(Ending::Undecodable(why)),
        };
        let id = self.worker.record_id(&delivery);
        let key = self.key(&id);
        let turn = match key.try_lock() {
            Ok(turn) => Some(turn),
            Err(_) => {
                let _waits = Waits::of(&self.waiting);
                before(self.worker.clock(), self.deadline.stop, key.lock()).await
            }
        };
        match turn {
            None => Outcome {
                job: Some(short(&delivery.job)),
                id: Some(id),
                ..Outcome::of(Ending::NotStarted)
            },
            Some(_turn) => {
                let trace = message.trace();
                let around = Around {
                    hidden: hiding.map(|hiding| hiding as &dyn Hidden),
                    trace: trace.as_ref(),
                    id: Some(&id),
                };
                let span = span::begun(&delivery, &id, around.trace);
                let handling = self.worker.handle_around(delivery, self.deadline, around);
                let outcome = handling.instrument(span.clone()).await;
                span::ended(&span, &outcome);
                outcome
            }
        }
    }

    /// The lock of one key in this batch: a second message with it waits for the first.
    fn key(&self, id: &RecordId) -> Arc<tokio::sync::Mutex<()>> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.entry(id.clone()).or_default().clone()
    }

    /// Whether the message is in quarantine for certain. If not, it is left to the queue's own
    /// redrive policy, which counts deliveries.
    async fn quarantine(&self, message: &Message, outcome: &Outcome, cause: Cause) -> bool {
        let clock = self.worker.clock();
        let mark = Mark::new(outcome, cause, clock.now());
        let placed = self.queue.quarantine(message, &mark);
        let not_sent = match before(clock, self.soon(self.deadline.told), placed).await {
            Some(Ok(Placed::Sent)) => return true,
            Some(Ok(Placed::Left(why))) => {
                warn!(message_id = message.id, %cause, why, "left to the queue's redrive policy");
                return false;
            }
            Some(Err(error)) => error.to_string(),
            None => "no answer in time".to_owned(),
        };
        error!(message_id = message.id, %cause, error = not_sent, "not quarantined; it comes again");
        false
    }

    /// A crash before this leaves the record `pending`: a second copy in quarantine, never none.
    async fn mark(&self, message: &Message, parked: &Held) {
        let now = self.worker.clock().now();
        // Half of what is left, so that the answer for a message that is in quarantine is in time.
        let until = now + self.soon(self.deadline.told).since(now) / 2;
        let marked = self.worker.mark_quarantined(parked, until).await;
        if let Err(error) = marked {
            warn!(message_id = message.id, %error, "quarantined, but not marked so");
        }
    }

    async fn delay(
        &self,
        messages: &[Message],
        retries: &BTreeMap<usize, Option<Timestamp>>,
        received: Timestamp,
    ) {
        let now = self.worker.clock().now();
        // Counted from when a message was received.
        let most = MAX_RETRY_AFTER.as_secs().saturating_sub(now.since(received).as_secs());
        let seconds = |when: Timestamp| when.remaining(now).as_millis().div_ceil(1000);
        let delays: Vec<_> = retries
            .iter()
            .filter_map(|(at, when)| {
                let seconds = u64::try_from(seconds((*when)?)).unwrap_or(most).min(most);
                let seconds = u32::try_from(seconds).unwrap_or_default();
                Some(Delay { message: messages.get(*at)?, seconds })
            })
            .collect();
        if delays.is_empty() {
            return;
        }
        // Half of what is left, so that the answer itself is never late.
        let until = now + self.soon(self.deadline.hard).since(now) / 2;
        if before(self.worker.clock(), until, self.queue.delay(delays)).await.is_none() {
            warn!("visibility timeouts were not set in time; messages come back by their own");
        }
    }
}
