//! `dlq` as a command: its arguments and its output.

use std::collections::BTreeMap;
use std::process::ExitCode;

use aws_sdk_sqs::Client;
use clap::{Args, Subcommand};
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::drawer::Drawer;
use super::letter::{Filter, Letter};
use super::replay::{Fate, Plan, Replayed, replay};
use crate::error::BoxError;
use crate::front::{AttributeValue, SqsQueue};
use crate::ops::ending::{NO_DLQ, NO_QUEUE};
use crate::ops::{Desk, instant};
use crate::protocol::Timestamp;
use crate::runtime::{Clock, SystemClock};
use crate::sdk::SdkConfig;

/// What `dlq` is asked for.
#[derive(Args, Clone, Debug)]
pub struct DlqArguments {
    #[command(subcommand)]
    verb: DlqVerb,
    /// The dead-letter queue; ONLYONCE_DLQ_URL by default.
    #[arg(long, global = true)]
    dlq_url: Option<String>,
}

#[derive(Subcommand, Clone, Debug)]
enum DlqVerb {
    /// List what is there, and count it by job and cause. Nothing is taken out.
    #[command(after_help = "Example:\n  onlyonce dlq list --cause failed --newer 2h\n\n\
        What is listed is hidden from others meanwhile. Of a FIFO queue, up to ten of each group \
        are seen.")]
    List {
        #[command(flatten)]
        filter: Filter,
        /// How many at most.
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Show one message: its attributes and its body.
    #[command(after_help = "Example:\n  onlyonce dlq show 5d0f1c6e-8f0b-4d5c-9a52-0d6f5b8f9a10")]
    Show {
        /// SQS's id of it, as `list` shows it.
        message_id: String,
    },
    /// Send messages back to the queue, then take them out. Without --yes it says what would
    /// become of each.
    #[command(
        after_help = "Example:\n  onlyonce dlq replay --job invoice.finalize --cause failed\n  \
        onlyonce dlq replay --job invoice.finalize --cause failed --rate 5 --yes\n\n\
        Safe to interrupt and to run again: under its key nothing runs twice. What would come \
        straight back stays."
    )]
    Replay {
        #[command(flatten)]
        filter: Filter,
        /// Do it.
        #[arg(long)]
        yes: bool,
        /// Messages a second, at most.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rate: u32,
        /// How many at most.
        #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
        limit: u64,
        /// The queue; ONLYONCE_QUEUE_URL by default.
        #[arg(long)]
        queue_url: Option<String>,
    },
}

/// The queues that are set.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// Where messages come back to.
    pub queue_url: Option<String>,
    /// Where they are.
    pub dlq_url: Option<String>,
}

impl DlqArguments {
    /// Runs it. Answers 1 if something was left, or not found.
    pub async fn run<D, S>(self, set: Queues, sdk: S, desk: D) -> Result<ExitCode, BoxError>
    where
        D: AsyncFnOnce() -> Result<Desk, BoxError>,
        S: Future<Output = SdkConfig>,
    {
        let url = self.dlq_url.or(set.dlq_url);
        let url = url.ok_or(NO_DLQ)?;
        let desk = desk().await?;
        let sdk = sdk.await;
        let mut drawer = Drawer::new(Client::new(&sdk), url);
        let ended = match self.verb {
            DlqVerb::List { filter, limit } => list(&desk, &mut drawer, &filter, limit).await,
            DlqVerb::Show { message_id } => show(&desk, &mut drawer, &message_id).await,
            DlqVerb::Replay { filter, yes, rate, limit, queue_url } => {
                let url = queue_url.or(set.queue_url);
                if yes && url.is_none() {
                    return Err(NO_QUEUE.into());
                }
                let queue = SqsQueue::new(&sdk).queue_url(url);
                let plan = Plan { filter: &filter, is_dry: !yes, rate, limit };
                let tell = |letter: &Letter, fate| tell(&desk, letter, fate);
                let done = Box::pin(replay(&desk, &mut drawer, &queue, &plan, tell)).await;
                done.and_then(|done| sum_up(&desk, done))
            }
        };
        // Also after an error: others wait for what is hidden.
        drawer.close().await;
        ended
    }
}

async fn list(
    desk: &Desk,
    drawer: &mut Drawer,
    filter: &Filter,
    limit: usize,
) -> Result<ExitCode, BoxError> {
    let mut letters = Vec::new();
    'all: loop {
        let messages = drawer.next().await?;
        if messages.is_empty() {
            break;
        }
        messages.iter().for_each(|message| drawer.leave(message));
        for message in messages {
            let letter = Letter::of(&message, &desk.jobs, &desk.namespace);
            if filter.takes(&letter, SystemClock.now()) {
                letters.push(letter);
            }
            if letters.len() >= limit {
                break 'all;
            }
        }
    }
    letters.sort_by_key(|letter| letter.at);
    if desk.is_json {
        letters.iter().try_for_each(print)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["message", "job", "cause", "since", "error"]);
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for Letter { message_id, job, cause, at, error, .. } in letters {
        let job = job.unwrap_or_else(|| "-".to_owned());
        *counts.entry((job.clone(), cause.clone())).or_default() += 1;
        let since = instant(Timestamp::from_millis(at));
        table.add_row([message_id, job, cause, since, error.unwrap_or_default()]);
    }
    println!("{table}");
    for ((job, cause), count) in counts {
        println!("{count} {cause}: {job}");
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    letter: Letter,
    attributes: BTreeMap<&'a str, &'a str>,
    group: Option<&'a str>,
    body: Option<&'a str>,
}

async fn show(desk: &Desk, drawer: &mut Drawer, id: &str) -> Result<ExitCode, BoxError> {
    loop {
        let messages = drawer.next().await?;
        if messages.is_empty() {
            return Err(format!("message {id} is not in the dead-letter queue").into());
        }
        messages.iter().for_each(|message| drawer.leave(message));
        let Some(message) = messages.iter().find(|message| message.id == id) else {
            continue;
        };
        let attributes = message.attributes.iter();
        let attributes = attributes.map(|(name, attribute)| match &attribute.value {
            AttributeValue::Text(text) => (name.as_str(), text.as_str()),
            AttributeValue::Binary(_) => (name.as_str(), "(binary)"),
        });
        let shown = Shown {
            letter: Letter::of(message, &desk.jobs, &desk.namespace),
            attributes: attributes.collect(),
            group: message.group.as_deref(),
            body: message.body.as_deref(),
        };
        if desk.is_json {
            print(&shown)?;
        } else {
            println!(
                "message  {}\nsince    {}",
                id,
                instant(Timestamp::from_millis(shown.letter.at))
            );
            println!("cause    {}", shown.letter.cause);
            for (name, value) in shown.attributes {
                println!("{name}: {value}");
            }
            println!("\n{}", shown.body.unwrap_or_default());
        }
        return Ok(ExitCode::SUCCESS);
    }
}

fn tell(desk: &Desk, letter: &Letter, fate: Fate) -> Result<(), BoxError> {
    if desk.is_json {
        let Letter { message_id, job, pk, .. } = letter;
        let told = serde_json::json!({
            "message_id": message_id, "job": job, "pk": pk, "fate": fate
        });
        println!("{told}");
    } else {
        let job = letter.job.as_deref().unwrap_or("-");
        println!("{} {job}: {fate}", letter.message_id);
    }
    Ok(())
}

fn sum_up(desk: &Desk, done: Replayed) -> Result<ExitCode, BoxError> {
    let Replayed { sent, left, others, is_dry, is_interrupted } = done;
    if desk.is_json {
        print(&done)?;
    } else {
        let would = if is_dry { "would be sent; --yes does it" } else { "sent to the queue" };
        println!("{sent} {would}, {left} left as they would come back, {others} of others");
        if is_interrupted {
            println!("interrupted: run it again for the rest");
        }
    }
    let is_all = left == 0 && !is_interrupted;
    Ok(if is_all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(value: &impl Serialize) -> Result<(), BoxError> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
