//! Receives as long as there is room, and runs what was received.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tracing::warn;

use super::super::batch::{lanes, told};
use super::super::message::Message;
use super::super::queue::Queue;
use super::health::Health;
use super::{BATCH, Poll};
use crate::protocol::Timestamp;
use crate::runtime::Clock;
use crate::service::{Deadline, Worker};

/// How long SQS hides a message at most, counted from its receive. A job can run no longer.
const MOST_HIDDEN: Duration = Duration::from_secs(12 * 3600);
/// Receives under way at once, however many jobs may be.
const RECEIVES: usize = 32;
/// The longest wait before a receive that follows a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Messages that run one after another, and the place they take.
struct Lane {
    messages: Vec<Message>,
    received: Timestamp,
    _place: OwnedSemaphorePermit,
}

/// One queue being polled.
pub(super) struct Polling<'a> {
    poll: &'a Poll,
    worker: &'a Worker,
    queue: &'a dyn Queue,
    clock: &'a dyn Clock,
    health: Arc<Health>,
    stop: watch::Receiver<bool>,
    /// One for each job that may run at once.
    places: Arc<Semaphore>,
    store: Outages,
}

impl<'a> Polling<'a> {
    pub fn new(
        poll: &'a Poll,
        worker: &'a Worker,
        queue: &'a dyn Queue,
        health: Arc<Health>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(worker.concurrency()));
        let (clock, store) = (worker.clock(), Outages::default());
        Self { poll, worker, queue, clock, health, stop, places, store }
    }

    /// Polls until it is told to stop, and then until all that was received has ended.
    pub async fn to_the_end(&self) {
        // As many as there are places, and so bounded by them.
        let (start, started) = mpsc::unbounded_channel();
        // Where deleting does not keep up, jobs keep their places.
        let (done, deleted) = mpsc::channel(BATCH * BATCH);
        let receives = self.worker.concurrency().div_ceil(BATCH).min(RECEIVES);
        let receiving = join_all((0..receives).map(|_| self.receiving(start.clone())));
        drop(start);
        let running = async move {
            let started = stream::unfold(started, |mut started| async {
                let lane = started.recv().await?;
                Some((lane, started))
            });
            started.for_each_concurrent(None, |lane| self.run(lane, &done)).await;
            drop(done);
        };
        tokio::join!(receiving, running, self.poll.deleting(self.clock, deleted));
    }

    async fn receiving(&self, start: mpsc::UnboundedSender<Lane>) {
        while let Some(mut places) = self.unless_stopped(self.places()).await.flatten() {
            let Some(messages) = self.received(places.num_permits()).await else { return };
            let received = self.clock.now();
            self.health.received(received);
            for messages in in_lanes(messages) {
                let _place = match places.split(1) {
                    Some(place) => place,
                    // More than were asked for. They are hidden only for so long.
                    None => match self.places.clone().acquire_owned().await {
                        Ok(place) => place,
                        Err(_) => return,
                    },
                };
                // It is received from for longer than this sends.
                let _ = start.send(Lane { messages, received, _place });
            }
        }
    }

    /// Receives, as often as it takes. `None` if it is told to stop meanwhile.
    async fn received(&self, most: usize) -> Option<Vec<Message>> {
        let _trying = self.health.trying(self.clock.now());
        let mut failures = 0u32;
        loop {
            self.unless_stopped(self.clock.sleep_until(self.store.until())).await?;
            match self.unless_stopped(self.poll.receive(most)).await? {
                Ok(messages) => return Some(messages),
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let wait = longer(failures);
                    warn!(%error, wait_s = wait.as_secs(), "cannot receive; trying again");
                    let wait = self.clock.sleep_until(self.clock.now() + wait);
                    self.unless_stopped(wait).await?;
                }
            }
        }
    }

    /// One place once there is one, and up to nine that are free besides.
    async fn places(&self) -> Option<OwnedSemaphorePermit> {
        let mut places = self.places.clone().acquire_owned().await.ok()?;
        while places.num_permits() < BATCH
            && let Ok(another) = self.places.clone().try_acquire_owned()
        {
            places.merge(another);
        }
        Some(places)
    }

    async fn run(&self, lane: Lane, done: &mpsc::Sender<Message>) {
        let _running = self.health.running();
        let deadline = Deadline::new(lane.received, lane.received + MOST_HIDDEN);
        let deadline = deadline.renewing(self.poll.visibility);
        let told = told(self.worker, self.queue, &lane.messages, deadline).await;
        self.store.note(told.is_store_out, self.clock.now());
        for message in lane.messages {
            if !told.again.contains(&message.id) {
                // It is received from until all have ended.
                let _ = done.send(message).await;
            }
        }
    }

    /// `None` if it is told to stop before `work` is done.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            _ = stop.wait_for(|is_stopping| *is_stopping) => None,
            done = work => Some(done),
        }
    }
}

/// The messages that wait for one another together, the others each for itself.
fn in_lanes(messages: Vec<Message>) -> Vec<Vec<Message>> {
    let lanes = lanes(&messages);
    let mut messages: Vec<_> = messages.into_iter().map(Some).collect();
    let mut take = |at: usize| messages.get_mut(at).and_then(Option::take);
    lanes.into_iter().map(|lane| lane.into_iter().filter_map(&mut take).collect()).collect()
}

/// Two seconds after the first failure, twice as long after each further one.
fn longer(failures: u32) -> Duration {
    Duration::from_secs(2u64.saturating_pow(failures)).min(LONGEST_WAIT)
}

/// While the store does not answer, little is received: each message would be received in vain, and
/// go to the dead letters once that has happened too often.
#[derive(Default)]
struct Outages {
    failures: AtomicU32,
    until: AtomicU64,
}

impl Outages {
    fn until(&self) -> Timestamp {
        Timestamp::from_millis(self.until.load(Ordering::Relaxed))
    }

    fn note(&self, is_out: bool, now: Timestamp) {
        if !is_out {
            self.failures.store(0, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        } else if now >= self.until() {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
            let wait = longer(failures);
            self.until.store((now + wait).millis(), Ordering::Relaxed);
            warn!(wait_s = wait.as_secs(), "the store does not answer; receiving less");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_group_is_one_lane_and_other_messages_are_each_their_own() {
        let message = |id: &str, group: Option<&str>| Message {
            id: id.to_owned(),
            group: group.map(ToOwned::to_owned),
            source_arn: group.map(|_| "arn:aws:sqs:us-east-1:1:orders.fifo".to_owned()),
            ..Message::default()
        };
        let ids = |messages| -> Vec<Vec<String>> {
            let id = |message: Message| message.id;
            in_lanes(messages).into_iter().map(|it| it.into_iter().map(id).collect()).collect()
        };
        let fifo = [("1", "a"), ("2", "b"), ("3", "a")].map(|(id, group)| message(id, Some(group)));
        assert_eq!(ids(fifo.into()), [vec!["1", "3"], vec!["2"]]);
        let standard = ["1", "2"].map(|id| message(id, None));
        assert_eq!(ids(standard.into()), [["1"], ["2"]]);
    }

    #[test]
    fn an_outage_of_the_store_makes_waits_longer_until_it_answers() {
        let store = Outages::default();
        store.note(true, NOW);
        assert_eq!(store.until(), NOW + SECOND * 2);
        store.note(true, NOW + SECOND);
        assert_eq!(store.until(), NOW + SECOND * 2, "jobs of the same outage count once");
        store.note(true, NOW + SECOND * 3);
        assert_eq!(store.until(), NOW + SECOND * 7);
        for n in 0..40 {
            store.note(true, NOW + SECOND * 100 * n);
        }
        assert!(store.until() <= NOW + SECOND * 3900 + LONGEST_WAIT);
        store.note(false, NOW);
        assert!(store.until() <= NOW);
    }
}
