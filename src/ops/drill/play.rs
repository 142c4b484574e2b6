//! A drill from its first message to what came of it, and its progress meanwhile.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use super::director::Director;
use super::evidence::KeyEvidence;
use super::load::{Load, LoadReport};
use super::place::Venue;
use super::post::Post;
use super::report::{About, Report};
use super::sight::{Count, Sight, counting};
use super::workers::Workers;
use crate::drill::{DrillKey, JOB, Ledger, NAMESPACE, Scenario};
use crate::error::BoxError;
use crate::protocol::Status;
use crate::runtime::{Clock, SystemClock, before};

/// How long a deployment may take to answer a probe.
const ANSWERS: Duration = Duration::from_secs(60);

/// Where it is played, and how.
pub(super) struct Setting<'a> {
    pub place: &'a Venue,
    pub name: String,
    pub run: String,
    pub is_local: bool,
    pub visibility: u64,
    pub patience: Duration,
    pub quiet: Duration,
}

/// What is played: scenarios, or a load.
pub(super) enum Play {
    Scenarios(Vec<Scenario>),
    Load(Load),
}

impl Play {
    /// How many workers of a local drill are killed: each key kills one.
    pub fn to_die(&self) -> usize {
        match self {
            Self::Scenarios(scenarios) => {
                let kill = scenarios.iter().filter(|it| it.crash().is_some());
                kill.map(|it| keys_of(*it, true)).sum()
            }
            Self::Load(_) => 0,
        }
    }

    /// Plays it, and watches until nothing is under way.
    pub async fn direct(
        &self,
        setting: Setting<'_>,
        workers: Option<&Workers>,
    ) -> Result<Report, BoxError> {
        let Setting { place, is_local, quiet, .. } = setting;
        let post = Post::new(&place.sdk, &place.queue_url);
        let ledger = Ledger::new(&place.sdk, &place.table);
        let began = SystemClock.now();
        let (say, count) = watch::channel(Count::default());
        let until = began + setting.patience;
        let long = match is_local {
            true => Duration::from_millis(setting.visibility * 2500),
            false => Duration::from_secs(setting.visibility / 2).min(Duration::from_secs(10)),
        };
        let director = Director {
            place,
            post: &post,
            ledger: &ledger,
            sight: Sight { store: place.store.as_ref(), count, until, quiet },
            run: setting.run.clone(),
            long,
            at_dlq: tokio::sync::Mutex::default(),
        };
        let bar = progress();
        let acting = async {
            if !is_local {
                bar.set_message("waiting for a worker in drill mode");
                director.probe((began + ANSWERS).min(until)).await?;
            }
            let keys = match self {
                Self::Scenarios(scenarios) => play(scenarios, &director, is_local, &bar).await?,
                Self::Load(load) => send(*load, &director, &bar).await?,
            };
            bar.set_message("waiting for an empty queue");
            director.sight.drained().await?;
            let drained = director.sight.count.borrow().empty_since.unwrap_or(SystemClock.now());
            bar.set_message("reading the ledger");
            let evidence = director.evidence(&keys, is_local).await?;
            if !is_local {
                let is_unknown = |it: &&KeyEvidence| {
                    it.record.as_ref().is_some_and(|record| record.status == Status::Unknown)
                };
                bar.set_message("resolving what was left unknown");
                for KeyEvidence { key, .. } in evidence.keys.iter().filter(is_unknown) {
                    if let Err(error) = director.resolve(key).await {
                        eprintln!(
                            "{key} stays unknown: {error}; end it with \
                             `ONLYONCE_NAMESPACE={NAMESPACE} onlyonce resolve {JOB} {key} --done`"
                        );
                    }
                }
            }
            Ok::<_, BoxError>((evidence, drained))
        };
        let watching = counting(&post, say);
        let (evidence, drained) = tokio::select! {
            played = acting => played?,
            () = watching => return Err("the queue is not watched any more".into()),
        };
        bar.finish_and_clear();
        let is_load = matches!(self, Self::Load(_));
        let load = is_load.then(|| LoadReport::of(&evidence, drained.millis()));
        let about = About {
            run: setting.run,
            place: setting.name,
            began,
            ended: SystemClock.now(),
            workers_died: workers.map(Workers::deaths),
            load,
        };
        Ok(Report::of(&evidence, about))
    }
}

/// Plays each of a scenario's keys, all at once.
async fn play(
    scenarios: &[Scenario],
    director: &Director<'_>,
    is_local: bool,
    bar: &ProgressBar,
) -> Result<Vec<DrillKey>, BoxError> {
    let keys = |it: &Scenario| {
        (0..keys_of(*it, is_local)).map(|n| director.key(*it, n)).collect::<Vec<_>>()
    };
    let keys: Vec<DrillKey> = scenarios.iter().flat_map(keys).collect();
    let all = keys.len();
    let done = AtomicUsize::new(0);
    let tell = |more: usize| {
        let done = done.fetch_add(more, Ordering::Relaxed) + more;
        bar.set_message(format!("{done} of {all} keys have come to their end"));
    };
    tell(0);
    try_join_all(keys.iter().map(async |key| {
        director.play(key).await?;
        tell(1);
        Ok::<_, BoxError>(())
    }))
    .await?;
    Ok(keys)
}

async fn send(
    load: Load,
    director: &Director<'_>,
    bar: &ProgressBar,
) -> Result<Vec<DrillKey>, BoxError> {
    let keys = load.of(director);
    let all = keys.len();
    let tell = |sent: usize| bar.set_message(format!("{sent} of {all} keys sent"));
    let by = director.sight.until;
    let sent = before(&SystemClock, by, load.send(director, &keys, tell)).await;
    sent.ok_or("it took too long to send it: give --timeout")??;
    Ok(keys)
}

/// How many keys play a scenario. In Lambda a kill takes the neighbours in its batch along, which all
/// wait for their visibility timeout then: there are fewer.
const fn keys_of(scenario: Scenario, is_local: bool) -> usize {
    match scenario {
        _ if !is_local && scenario.crash().is_some() => 1,
        Scenario::LongJob | Scenario::LateWorker | Scenario::Redrive => 1,
        _ => 2,
    }
}

fn progress() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(120));
    match ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
