//! `drill` as a command: its arguments, where it is played, its output.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use tokio::signal::unix::{SignalKind, signal};

use super::html;
use super::load::Load;
use super::place::{Made, Venue};
use super::play::{Play, Setting};
use super::post::Post;
use super::report::Report;
use super::workers::{Stage, Workers};
use crate::drill::Scenario;
use crate::error::BoxError;
use crate::ops::Usage;
use crate::ops::ending::NO_DLQ;
use crate::runtime::{Entropy, OsEntropy};

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

/// How long a local queue hides a message: an attempt that died is taken over five seconds later.
const VISIBILITY: u32 = 3;
/// The same under load, where a busy machine must be able to renew in time.
const VISIBILITY_OF_LOAD: u32 = 6;

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
        let play = self.play(self.queue_url.is_none())?;
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
            let workers = Workers::start(&stage, usize::try_from(count)?, play.to_die())?;
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
                report = play.direct(setting, Some(&workers)) => report?,
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
        Box::pin(play.direct(setting, None)).await
    }

    /// What is asked for, of what can be played here.
    fn play(&self, is_local: bool) -> Result<Play, BoxError> {
        if let Some(keys) = self.load {
            let (keys, copies) = (usize::try_from(keys)?, usize::try_from(self.copies)?);
            return Ok(Play::Load(Load { keys, copies }));
        }
        let is_asked = |it: &Scenario| self.only.is_empty() || self.only.contains(it);
        // In Lambda a worker does not outlive its lease: the platform ends it.
        let is_here = |it: &Scenario| is_local || *it != Scenario::LateWorker;
        let scenarios: Vec<_> = scenes().filter(|it| is_asked(it) && is_here(it)).collect();
        if scenarios.is_empty() {
            return Err(Usage::new(
                "late-worker is played with --local alone: in Lambda the platform ends a worker that \
                 outlives its lease",
            )
            .into());
        }
        Ok(Play::Scenarios(scenarios))
    }
}
