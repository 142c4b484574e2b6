//! `drill` as a command: its arguments, its progress, its output.

use std::io::{IsTerminal, Read, stderr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use futures_util::future::try_join_all;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::director::Director;
use super::evidence::KeyEvidence;
use super::html;
use super::load::{Load, LoadReport};
use super::place::{Made, Venue};
use super::post::Post;
use super::report::{About, Report};
use super::sight::{Count, Sight, counting};
use super::workers::{Stage, Workers};
use crate::drill::{DrillKey, JOB, Ledger, NAMESPACE, Scenario};
use crate::error::BoxError;
use crate::ops::Usage;
use crate::ops::ending::NO_DLQ;
use crate::protocol::Status;
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock, before};

/// What `drill` is asked for.
#[derive(Args, Clone, Debug)]
#[command(
    group = ArgGroup::new("where").required(true).args(["local", "queue_url", "serve"]),
    after_help = "Example:\n  onlyonce drill --local --html drill.html\n  \
        onlyonce drill --local --load 2000 --copies 3\n  \
        ONLYONCE_STORE=dynamodb://onlyonce-staging onlyonce drill --queue-url URL --dlq-url URL\n\n\
        A deployment takes part if its worker has ONLYONCE_DRILL=1 and ONLYONCE_NAMESPACE=drill. Exit \
        status: 0 = every invariant held, 1 = one is broken and named, or the drill could not be \
        played, 2 = wrong usage."
)]
pub struct DrillArguments {
    /// On this machine: starts an emulator (or takes that of AWS_ENDPOINT_URL) and workers, and
    /// removes them.
    #[arg(long)]
    local: bool,
    /// On a deployment in drill mode: its queue. ONLYONCE_STORE names its table.
    #[arg(long, value_name = "URL", conflicts_with_all = ["local", "serve"])]
    queue_url: Option<String>,
    /// Its dead-letter queue; ONLYONCE_DLQ_URL by default.
    #[arg(long, value_name = "URL", requires = "queue_url")]
    dlq_url: Option<String>,
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "SCENARIO", value_parser = scenario, conflicts_with = "load")]
    only: Vec<Scenario>,
    /// Instead of the scenarios: so many messages, and how long they take.
    #[arg(long, value_name = "MESSAGES", conflicts_with = "queue_url",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    load: Option<u32>,
    /// How often each of them is sent.
    #[arg(long, value_name = "COPIES", default_value_t = 3, requires = "load",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    copies: u32,
    /// Workers, each a process.
    #[arg(long, value_name = "COUNT", conflicts_with = "queue_url",
        value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: Option<u32>,
    /// How long it may take; by default 100 s here, ten minutes for a load, and elsewhere six times the
    /// queue's visibility timeout and two minutes.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=43_200))]
    timeout: Option<u64>,
    /// Write the report to this file as a page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A worker of a local drill.
    #[arg(long, hide = true)]
    serve: bool,
}

fn scenario(text: &str) -> Result<Scenario, String> {
    let known = || scenes().map(Scenario::as_str).collect::<Vec<_>>().join(", ");
    let found = scenes().find(|it| it.as_str() == text);
    found.ok_or_else(|| format!("there is no such scenario; there are {}", known()))
}

/// What is played.
fn scenes() -> impl Iterator<Item = Scenario> {
    Scenario::ALL.iter().copied().filter(|it| it.is_scene())
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

/// How long a local queue hides a message: an attempt that died is taken over five seconds later.
const VISIBILITY: u32 = 3;
/// The same under load, where a busy machine must be able to renew in time.
const VISIBILITY_OF_LOAD: u32 = 6;
/// How long a deployment may take to answer a probe.
const ANSWERS: Duration = Duration::from_secs(60);

/// Where it is played, and how.
struct Setting<'a> {
    place: &'a Venue,
    name: String,
    run: String,
    is_local: bool,
    visibility: u64,
    patience: Duration,
    quiet: Duration,
}

impl DrillArguments {
    /// Whether this is a worker of a local drill.
    pub fn is_worker(&self) -> bool {
        self.serve
    }

    /// Ends this worker when its drill has ended, in whatever way.
    pub fn end_with_the_drill() {
        std::thread::spawn(|| {
            // Nothing is ever written there: it ends when its other side does.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0)
        });
    }

    /// Runs it. Answers 1 if an invariant was broken.
    pub async fn run(
        &self,
        table: Option<String>,
        dlq_url: Option<String>,
        is_json: bool,
    ) -> Result<ExitCode, BoxError> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut made = Made::default();
        let run: String = OsEntropy.claim_id().as_str().chars().take(8).collect();
        let played = {
            let playing = Box::pin(self.played(&mut made, run, table, dlq_url));
            tokio::select! {
                played = playing => played,
                _ = interrupt.recv() => Err("interrupted".into()),
                _ = terminate.recv() => Err("told to stop".into()),
            }
        };
        // Whatever came of it, nothing is left: the workers have ended with the play.
        made.remove().await;
        let report = played?;
        if let Some(file) = &self.html {
            std::fs::write(file, html::page(&report))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if is_json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            println!("{report}");
        }
        Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn played(
        &self,
        made: &mut Made,
        run: String,
        table: Option<String>,
        dlq_url: Option<String>,
    ) -> Result<Report, BoxError> {
        let given = self.timeout.map(Duration::from_secs);
        let Some(queue_url) = &self.queue_url else {
            let visibility = if self.load.is_some() { VISIBILITY_OF_LOAD } else { VISIBILITY };
            let place = made.make(&run, visibility).await?;
            let stage = Stage {
                table: place.table.clone(),
                queue_url: place.queue_url.clone(),
                dlq_url: place.dlq_url.clone(),
                endpoint: made.endpoint(),
                at_once: if self.load.is_some() { 16 } else { 1 },
            };
            let default = if self.load.is_some() { 3 } else { 7 };
            let count = self.workers.unwrap_or(default);
            let workers = Workers::start(&stage, usize::try_from(count)?, self.to_die())?;
            let patience = if self.load.is_some() { 600 } else { 100 };
            let setting = Setting {
                place: &place,
                name: "this machine".to_owned(),
                run,
                is_local: true,
                visibility: visibility.into(),
                patience: given.unwrap_or(Duration::from_secs(patience)),
                quiet: Duration::from_secs(3),
            };
            let report = tokio::select! {
                report = self.direct(setting, Some(&workers)) => report?,
                error = workers.failed() => return Err(error),
            };
            return Ok(report);
        };
        let dlq_url = self.dlq_url.clone().or(dlq_url);
        let dlq_url = dlq_url.ok_or(NO_DLQ)?;
        let table = table.ok_or(Usage::new(
            "the drill keeps its ledger in DynamoDB: set ONLYONCE_STORE to dynamodb://TABLE, the table of \
             the deployment",
        ))?;
        let place = Venue::deployed(queue_url.clone(), dlq_url, table).await;
        let visibility = Post::new(&place.sdk, queue_url).visibility().await?;
        let patience = given.unwrap_or(Duration::from_secs(visibility * 6 + 120));
        let setting = Setting {
            place: &place,
            name: queue_url.clone(),
            run,
            is_local: false,
            visibility,
            patience,
            // Its counts lag by as much as a minute.
            quiet: Duration::from_secs(visibility.clamp(20, 90)),
        };
        Box::pin(self.direct(setting, None)).await
    }

    /// What is played here.
    fn scenarios(&self, is_local: bool) -> Vec<Scenario> {
        let is_asked = |it: &Scenario| self.only.is_empty() || self.only.contains(it);
        // In Lambda a worker does not outlive its lease: the platform ends it.
        let is_here = |it: &Scenario| is_local || *it != Scenario::LateWorker;
        scenes().filter(|it| is_asked(it) && is_here(it)).collect()
    }

    /// How many workers of a local drill are killed: each key kills one.
    fn to_die(&self) -> usize {
        match self.load {
            Some(_) => 0,
            None => {
                let kill = self.scenarios(true).into_iter().filter(|it| it.crash().is_some());
                kill.map(|it| keys_of(it, true)).sum()
            }
        }
    }

    async fn direct(
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
            let keys = match self.load {
                Some(keys) => self.load(&director, usize::try_from(keys)?, &bar).await?,
                None => self.play(&director, is_local, &bar).await?,
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
        let load = self.load.map(|_| LoadReport::of(&evidence, drained.millis()));
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

    async fn play(
        &self,
        director: &Director<'_>,
        is_local: bool,
        bar: &ProgressBar,
    ) -> Result<Vec<DrillKey>, BoxError> {
        let scenarios = self.scenarios(is_local);
        if scenarios.is_empty() {
            return Err(
                "late-worker is played with --local alone: in Lambda the platform ends a worker \
                        that outlives its lease"
                    .into(),
            );
        }
        let keys = |it: &Scenario| {
            (0..keys_of(*it, is_local)).map(|n| director.key(*it, n)).collect::<Vec<_>>()
        };
        let keys: Vec<DrillKey> = scenarios.iter().flat_map(keys).collect();
        let all = keys.len();
        let done = std::sync::atomic::AtomicUsize::new(0);
        let tell = |more: usize| {
            let done = done.fetch_add(more, std::sync::atomic::Ordering::Relaxed) + more;
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

    async fn load(
        &self,
        director: &Director<'_>,
        keys: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<DrillKey>, BoxError> {
        let load = Load { keys, copies: usize::try_from(self.copies)? };
        let keys = load.of(director);
        let all = keys.len();
        let tell = |sent: usize| bar.set_message(format!("{sent} of {all} keys sent"));
        let by = director.sight.until;
        let sent = before(&SystemClock, by, load.send(director, &keys, tell)).await;
        sent.ok_or("it took too long to send it: give --timeout")??;
        Ok(keys)
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
