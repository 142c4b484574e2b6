//! Sending the lines of a file, of any length.

use std::collections::HashSet;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::mpsc;

use super::lines::{self, Line, Lines};
use super::send::{Letter, parcel};
use crate::error::BoxError;
use crate::handler::Router;
use crate::producer::{Parcel, Producer, SendError, SendErrorKind, Sent, is_fifo};
use crate::protocol::{KeyAdvice, RecordId, Timestamp};
use crate::runtime::{Clock, SystemClock};

/// Lines that are sent together: what a producer has under way at once.
const TOGETHER: usize = 40;

/// How lines are sent.
pub struct SendPlan<'a> {
    /// The jobs that are to read them.
    pub jobs: &'a Router,
    /// The worker's namespace, for digests.
    pub namespace: &'a str,
    /// The queue.
    pub queue_url: &'a str,
    /// How long the queue keeps each to itself, in seconds.
    pub delay: Option<u64>,
    /// Whether keys that look random are refused.
    pub is_strict: bool,
    /// Whether to print JSON.
    pub is_json: bool,
}

/// Sends the lines of a file, or of standard input, and says what became of each. Answers 1 if
/// one was not sent.
///
/// A file is read to its end before anything of it is sent, and nothing is sent if a line is
/// faulty. What can be read once only (standard input, a pipe) is sent as it comes: a faulty line is
/// reported and left out, and ends it where the queue is FIFO.
pub async fn send_file(
    file: Option<PathBuf>,
    producer: &Producer,
    plan: &SendPlan<'_>,
) -> Result<ExitCode, BoxError> {
    if file.as_ref().is_some_and(|path| path.is_file()) {
        let mut lines = Lines::open(file.as_deref())?;
        while let Some(Line { at, text }) = lines.next()? {
            let fits = plan.letter(text).and_then(|it| it.parcel.check(is_fifo(plan.queue_url)));
            fits.map_err(|why| format!("{}: {why}; nothing was sent", lines.place(at)))?;
        }
    }
    let mut coming = read_along(file.clone())?;
    let mut teller = Teller::new(file.as_deref(), plan.is_json);
    let mut behind = HashSet::new();
    let mut read = Vec::new();
    while coming.recv_many(&mut read, TOGETHER).await > 0 {
        let lines: Vec<Line> = read.drain(..).collect::<Result<_, String>>()?;
        let mut about = Vec::new();
        let mut parcels = Vec::new();
        for Line { at, text } in lines {
            let letter = plan.letter(text);
            let job = letter.as_ref().ok().and_then(|letter| letter.parcel.job.clone());
            about.push((at, job));
            let parcel = letter.map(|letter| teller.advise(at, letter));
            let is_gap = parcel.is_err() && is_fifo(plan.queue_url);
            parcels.push(parcel.map_err(SendError::unreadable));
            if is_gap {
                // Which group it was to be of cannot be told, and nothing may overtake it.
                teller.stopped = Some("what comes next may not overtake this line");
                break;
            }
        }
        let outcomes = Box::pin(producer.send_parcels(parcels, &mut behind)).await;
        let is_down = outcomes.iter().all(|outcome| {
            outcome.as_ref().is_err_and(|error| error.kind() != SendErrorKind::Faulty)
        });
        for ((at, job), outcome) in about.into_iter().zip(outcomes) {
            teller.tell(at, job.as_deref(), &outcome);
        }
        if is_down {
            teller.stopped = Some("nothing was taken any more");
        }
        if teller.stopped.is_some() {
            break;
        }
    }
    Ok(teller.sum_up())
}

impl SendPlan<'_> {
    fn letter(&self, text: Result<String, String>) -> Result<Letter, String> {
        let mut letter = parcel(&text?, self.jobs, self.namespace)?;
        letter.parcel.delay = self.delay;
        match letter.advice {
            Some(advice) if self.is_strict => Err(advice.to_string()),
            _ => Ok(letter),
        }
    }
}

/// Reads lines beside the sending, which they wait for: what is read ahead is bounded. By a thread
/// of its own, which the program's end does not wait for: its next line may never come.
fn read_along(file: Option<PathBuf>) -> Result<mpsc::Receiver<Result<Line, String>>, BoxError> {
    let mut lines = Lines::open(file.as_deref())?;
    let (found, coming) = mpsc::channel(TOGETHER);
    let _reading = std::thread::Builder::new().spawn(move || {
        loop {
            let next = lines.next().map_err(|error| error.to_string()).transpose();
            let is_last = !matches!(next, Some(Ok(_)));
            if next.is_none_or(|line| found.blocking_send(line).is_err()) || is_last {
                return;
            }
        }
    })?;
    Ok(coming)
}

/// Says what becomes of each line: message ids on standard output, the rest on standard error.
struct Teller {
    name: String,
    is_json: bool,
    bar: ProgressBar,
    advised: HashSet<KeyAdvice>,
    begun: Timestamp,
    last: usize,
    sent: u64,
    failed: u64,
    /// Why it goes on no further.
    stopped: Option<&'static str>,
}

impl Teller {
    fn new(file: Option<&Path>, is_json: bool) -> Self {
        Self {
            name: lines::name(file),
            is_json,
            bar: progress_bar(),
            advised: HashSet::new(),
            begun: SystemClock.now(),
            last: 0,
            sent: 0,
            failed: 0,
            stopped: None,
        }
    }

    /// Warns once of each kind: a producer that does it does it on every line.
    fn advise(&mut self, at: usize, Letter { parcel, advice }: Letter) -> Parcel {
        if let Some(advice) = advice.filter(|advice| self.advised.insert(*advice)) {
            let id = parcel.id.as_ref().map(RecordId::as_str);
            self.bar.suspend(|| match self.is_json {
                true => {
                    eprintln!("{}", json!({"line": at, "key": id, "warning": advice.to_string()}));
                }
                false => eprintln!(
                    "{}:{at}: warning: key {}: {advice} (said once; --strict refuses such keys)",
                    self.name,
                    id.unwrap_or("-"),
                ),
            });
        }
        parcel
    }

    fn tell(&mut self, at: usize, job: Option<&str>, outcome: &Result<Sent, SendError>) {
        self.last = at;
        match outcome {
            Ok(_) => self.sent += 1,
            Err(_) => self.failed += 1,
        }
        self.bar.suspend(|| match outcome {
            Ok(Sent { message_id, id, .. }) if self.is_json => {
                let key = id.as_ref().map(RecordId::as_str);
                println!(
                    "{}",
                    json!({"line": at, "message_id": message_id, "key": key, "job": job})
                );
            }
            Ok(Sent { message_id, .. }) => println!("{message_id}"),
            Err(error) if self.is_json => {
                let key = error.id().map(RecordId::as_str);
                println!("{}", json!({"line": at, "error": error.why(), "key": key, "job": job}));
            }
            Err(error) => eprintln!("{}:{at}: {error}", self.name),
        });
        self.bar.set_position(self.sent);
    }

    fn sum_up(self) -> ExitCode {
        self.bar.finish_and_clear();
        let ms = SystemClock.now().millis().saturating_sub(self.begun.millis()).max(1);
        let rate = self.sent.saturating_mul(1000) / ms;
        if self.is_json {
            let stopped_at = self.stopped.map(|_| self.last);
            eprintln!(
                "{}",
                json!({
                    "sent": self.sent, "not_sent": self.failed, "ms": ms, "per_second": rate,
                    "stopped_at": stopped_at,
                })
            );
        } else {
            let seconds = std::time::Duration::from_millis(ms).as_secs_f64();
            eprintln!("{} sent in {seconds:.1} s, {rate}/s", self.sent);
        }
        if self.failed == 0 {
            return ExitCode::SUCCESS;
        }
        if !self.is_json {
            if let Some(why) = self.stopped {
                eprintln!("stopped after {}:{}: {why}", self.name, self.last);
            }
            eprintln!(
                "{} not sent; repair what is said above and run the same again, which is safe: under \
                 its key nothing runs twice",
                self.failed
            );
        }
        ExitCode::FAILURE
    }
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    match ProgressStyle::with_template("{spinner} {pos} messages, {per_sec}, {elapsed}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
