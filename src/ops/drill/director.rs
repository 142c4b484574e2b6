//! What is sent of each scenario, and when.

use std::time::Duration;

use super::evidence::{Evidence, KeyEvidence, Sent};
use super::place::Venue;
use super::post::{Post, Sending};
use super::sight::{Sight, id};
use crate::drill::{DrillKey, JOB, Kept, Ledger, NAMESPACE, Reading, Scenario};
use crate::error::BoxError;
use crate::front::{AttributeValue, Message, SqsQueue};
use crate::handler::Router;
use crate::ops::Desk;
use crate::ops::dlq::{Drawer, Filter, Letter, Plan, replay};
use crate::ops::operate::{Refused, transition};
use crate::protocol::{Output, Record, Resolution, Resolve, Retention, Status, Timestamp, resolve};
use crate::rules::ATTRIBUTE_KEY;
use crate::runtime::{Clock, SystemClock};
use crate::service::SKEW;

/// A run being directed.
pub(super) struct Director<'a> {
    pub place: &'a Venue,
    pub post: &'a Post,
    pub ledger: &'a Ledger,
    pub sight: Sight<'a>,
    pub run: String,
    /// How long the long job takes.
    pub long: Duration,
    /// Dead letters are looked at by one at a time: each look hides them from others.
    pub at_dlq: tokio::sync::Mutex<()>,
}

/// How long a job takes that is to be met by its copies.
const A_WHILE: u64 = 1_000;
/// How long a resolved record of the drill stays, and how long it may take to be resolved.
const RESOLVED_FOR: Duration = Duration::from_secs(24 * 3600);
const RESOLVES_WITHIN: Duration = Duration::from_secs(60);
/// Dead letters of others that are gone through at most.
const MOST_LETTERS: usize = 10_000;

impl Director<'_> {
    pub fn key(&self, scenario: Scenario, n: usize) -> DrillKey {
        DrillKey { run: self.run.clone(), scenario, n }
    }

    async fn send(&self, key: &DrillKey, whys: &[Sent], takes_ms: u64) -> Result<(), BoxError> {
        let sending = |why: &Sent| Sending { key: key.clone(), takes_ms, why: *why };
        let sendings: Vec<Sending> = whys.iter().map(sending).collect();
        self.post.send(&sendings).await
    }

    /// Plays one key to its end, or until it is clear that it has none.
    pub async fn play(&self, key: &DrillKey) -> Result<(), BoxError> {
        match key.scenario {
            Scenario::TwiceAtOnce => self.send(key, &[Sent::First, Sent::Copy], A_WHILE).await?,
            Scenario::AtMostOnce => {
                self.send(key, &[Sent::First, Sent::Copy], A_WHILE).await?;
                self.then(key, &[Sent::Copy], A_WHILE).await?;
            }
            Scenario::CopiesLater => {
                self.send(key, &[Sent::First], 0).await?;
                self.then(key, &[Sent::Copy, Sent::Copy, Sent::Copy], 0).await?;
            }
            Scenario::Mismatch if key.n % 2 == 1 => {
                self.send(key, &[Sent::First], A_WHILE).await?;
                self.sight.until(key, |_| true).await?;
                self.send(key, &[Sent::Other], A_WHILE).await?;
            }
            Scenario::Mismatch => {
                self.send(key, &[Sent::First], 0).await?;
                self.then(key, &[Sent::Other], 0).await?;
            }
            Scenario::LongJob => {
                let takes = u64::try_from(self.long.as_millis()).unwrap_or(u64::MAX);
                self.send(key, &[Sent::First], takes).await?;
                if self.sight.until(key, |_| true).await?.is_some() {
                    SystemClock.sleep_until(SystemClock.now() + self.long / 2).await;
                    self.send(key, &[Sent::Copy], takes).await?;
                }
            }
            Scenario::Redrive => {
                self.send(key, &[Sent::First], 0).await?;
                self.redrive(key).await?;
            }
            _ => self.send(key, &[Sent::First], 0).await?,
        }
        self.sight.end(key).await.map(drop)
    }

    /// Sends more once a key has ended; nothing if it does not.
    async fn then(&self, key: &DrillKey, whys: &[Sent], takes_ms: u64) -> Result<(), BoxError> {
        if self.sight.end(key).await?.is_some() {
            self.send(key, whys, takes_ms).await?;
        }
        Ok(())
    }

    /// Waits until it has failed, mends it, and brings its message back.
    async fn redrive(&self, key: &DrillKey) -> Result<(), BoxError> {
        let Some(record) = self.sight.end(key).await? else { return Ok(()) };
        if record.status != Status::Failed {
            return Ok(());
        }
        self.ledger.mend(key).await?;
        // One that comes back sooner counts as a stray copy of what failed.
        let due = record.updated_at + SKEW + Duration::from_secs(1);
        SystemClock.sleep_until(due).await;
        let _mine = self.at_dlq.lock().await;
        let desk = Desk {
            store: self.place.store.clone(),
            namespace: NAMESPACE.to_owned(),
            jobs: Router::new(),
            is_json: false,
        };
        let queue = SqsQueue::new(&self.place.sdk).queue_url(Some(self.place.queue_url.clone()));
        let mut drawer = self.drawer();
        let filter = Filter::of_pk(id(key)?.to_string());
        let plan = Plan { filter: &filter, is_dry: false, rate: 100, limit: 1 };
        let at = SystemClock.now().millis();
        let done = Box::pin(replay(&desk, &mut drawer, &queue, &plan, |_, _| Ok(()))).await;
        drawer.close().await;
        if done?.sent > 0 {
            self.post.note(key, at, Sent::Redriven);
        }
        self.sight.until(key, |record| record.status != Status::Failed).await.map(drop)
    }

    fn drawer(&self) -> Drawer {
        Drawer::new(aws_sdk_sqs::Client::new(&self.place.sdk), self.place.dlq_url.clone())
    }

    /// What is known now that all has ended. This run's dead letters are taken out.
    pub async fn evidence(&self, keys: &[DrillKey], is_local: bool) -> Result<Evidence, BoxError> {
        let left = self.sight.drained().await?;
        let mut letters = self.letters().await?;
        let mut kept = Reading(self.ledger).kept(keys).await?;
        let mut found = Vec::with_capacity(keys.len());
        let ids = keys.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        for (batch, ids) in keys.chunks(16).zip(ids.chunks(16)) {
            let records = ids.iter().map(|id| self.sight.store.load(id));
            let records = futures_util::future::try_join_all(records).await?;
            for (key, record) in batch.iter().zip(records) {
                let kept: Kept = kept.remove(key).unwrap_or_default();
                let of_key = |(of, _): &mut (DrillKey, String)| of == key;
                let letters = letters.extract_if(.., of_key).map(|(_, cause)| cause).collect();
                let sent = self.post.sent(key);
                found.push(KeyEvidence { key: key.clone(), sent, kept, record, letters });
            }
        }
        // Elsewhere, workers' clocks may differ by as much as the margin is.
        let margin = if is_local { SKEW } else { Duration::ZERO };
        let margin_ms = u64::try_from(margin.as_millis()).unwrap_or(u64::MAX);
        Ok(Evidence { keys: found, left, margin_ms, has_pollers: is_local })
    }

    /// Takes a record of this run out of `unknown`, which it would be in for ever: whether its effect
    /// happened matters to nobody any more.
    pub async fn resolve(&self, key: &DrillKey) -> Result<(), BoxError> {
        let id = id(key)?;
        let decide = |record: &Record, claim_id, now| {
            let resolution = Resolution::JobDone(Output::Omitted);
            let retention = Retention::For(RESOLVED_FOR);
            let settles_within = Duration::ZERO;
            let request = Resolve { claim_id, skew: SKEW, settles_within, retention, resolution };
            resolve(record, &request, now)
        };
        let until = SystemClock.now() + RESOLVES_WITHIN;
        while let Err(error) = transition(self.sight.store, &id, decide).await {
            let why = error.downcast::<Refused>()?;
            match why.until().filter(|at| *at < until) {
                // The request of a worker that died may be under way for so long.
                Some(at) => SystemClock.sleep_until(at + Duration::from_millis(10)).await,
                None => return Err(why),
            }
        }
        Ok(())
    }

    /// This run's dead letters: whose, and why.
    async fn letters(&self) -> Result<Vec<(DrillKey, String)>, BoxError> {
        let mut drawer = self.drawer();
        let mut found = Vec::new();
        let mut seen = 0;
        let ended: Result<(), BoxError> = async {
            while seen < MOST_LETTERS {
                let messages = drawer.next().await?;
                if messages.is_empty() {
                    break;
                }
                seen += messages.len();
                for message in messages {
                    match key_of(&message).filter(|key| key.run == self.run) {
                        Some(key) => {
                            let letter = Letter::of(&message, &Router::new(), NAMESPACE);
                            found.push((key, letter.cause));
                            drawer.delete(&message).await?;
                        }
                        None => drawer.leave(&message),
                    }
                }
            }
            Ok(())
        }
        .await;
        // Also after an error: others wait for what is hidden.
        drawer.close().await;
        ended.map(|()| found)
    }

    /// Whether a worker in drill mode answers by `until`.
    pub async fn probe(&self, until: Timestamp) -> Result<(), BoxError> {
        let key = self.key(Scenario::Probe, 0);
        self.send(&key, &[Sent::First], 0).await?;
        let sight = Sight { count: self.sight.count.clone(), until, ..self.sight };
        if sight.until(&key, |record| record.status == Status::Completed).await?.is_some() {
            return Ok(());
        }
        let is_refused = self.letters().await?.iter().any(|(of, _)| *of == key);
        let how = match is_refused {
            true => format!("its worker does not know the job {JOB}"),
            false => "nobody has answered the probe in time".to_owned(),
        };
        Err(format!(
            "this deployment is not in drill mode: {how}; set ONLYONCE_DRILL=1 and \
             ONLYONCE_NAMESPACE={NAMESPACE} in its worker, and give this command its store, queue and \
             dead-letter queue"
        )
        .into())
    }
}

fn key_of(message: &Message) -> Option<DrillKey> {
    match &message.attributes.get(ATTRIBUTE_KEY)?.value {
        AttributeValue::Text(text) => text.parse().ok(),
        AttributeValue::Binary(_) => None,
    }
}
