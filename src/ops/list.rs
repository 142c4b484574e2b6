//! `list`: records by status, job and age.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table};
use indicatif::ProgressBar;

use super::age::Ages;
use super::{RecordView, instant};
use crate::error::BoxError;
use crate::protocol::{EpochSeconds, Record, Status, Timestamp};
use crate::runtime::{Clock, SystemClock};
use crate::store::Store;

/// How many records are asked for at once.
const AT_ONCE: usize = 100;

/// What waits for a retry or a person, in the order in which a person is needed.
const PARKED: [Status; 3] = [Status::Unknown, Status::Failed, Status::Released];

/// Which records.
#[derive(Args, Clone, Debug)]
pub struct ListArguments {
    /// Those of this status; without one, all that wait for a retry or a person.
    status: Option<Listed>,
    /// Those of this job.
    #[arg(long)]
    job: Option<String>,
    /// Since their last write.
    #[command(flatten)]
    ages: Ages,
    /// Read every record of the store, not just its index of what waits: a long and, on DynamoDB, a
    /// dear look. What runs and what is done is found by no other. In no order.
    #[arg(long, required_if_eq_any = [("status", "claimed"), ("status", "completed")])]
    scan: bool,
    /// How many at most.
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Listed {
    Released,
    Failed,
    Unknown,
    Claimed,
    Completed,
}

impl From<Listed> for Status {
    fn from(listed: Listed) -> Self {
        match listed {
            Listed::Released => Self::Released,
            Listed::Failed => Self::Failed,
            Listed::Unknown => Self::Unknown,
            Listed::Claimed => Self::Claimed,
            Listed::Completed => Self::Completed,
        }
    }
}

impl ListArguments {
    /// Runs it: a table, or a line of JSON each as they are found.
    pub async fn run(
        &self,
        store: &dyn Store,
        namespace: &str,
        is_json: bool,
    ) -> Result<ExitCode, BoxError> {
        let mut table = Table::new();
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["status", "since", "job", "key", "attempt", "quarantine", "error"]);
        let tell = |record: Record| -> Result<(), BoxError> {
            let since = instant(record.updated_at);
            let record = RecordView::from(record);
            if is_json {
                println!("{}", serde_json::to_string(&record)?);
                return Ok(());
            }
            table.add_row([
                record.status.to_owned(),
                since,
                record.job,
                record.key,
                record.attempt.to_string(),
                record.quarantine.unwrap_or("-").to_owned(),
                record.error.unwrap_or_default(),
            ]);
            Ok(())
        };
        let mut found =
            Found { wanted: self, namespace, now: SystemClock.now(), left: self.limit, tell };
        match self.scan {
            true => found.everywhere(store).await?,
            false => found.in_the_index(store).await?,
        }
        if !is_json {
            println!("{table}");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn takes(&self, record: &Record, namespace: &str, now: Timestamp) -> bool {
        // What is forgotten waits for nobody, and stays until its TTL takes it.
        let is_kept = |at: EpochSeconds| !at.is_past(now);
        record.namespace == namespace
            && self.status.is_none_or(|status| record.status == status.into())
            && self.job.as_ref().is_none_or(|job| *job == record.job)
            && self.ages.take(record.updated_at, now)
            && record.expires_at.is_none_or(is_kept)
    }
}

struct Found<'a, T> {
    wanted: &'a ListArguments,
    namespace: &'a str,
    now: Timestamp,
    left: usize,
    tell: T,
}

impl<T: FnMut(Record) -> Result<(), BoxError>> Found<'_, T> {
    async fn in_the_index(&mut self, store: &dyn Store) -> Result<(), BoxError> {
        let named = self.wanted.status.map(Status::from);
        for status in PARKED.into_iter().filter(|status| named.is_none_or(|named| named == *status))
        {
            let mut cursor = None;
            while self.left > 0 {
                let page = store.scan(status, cursor, AT_ONCE).await?;
                self.take(page.records)?;
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn everywhere(&mut self, store: &dyn Store) -> Result<(), BoxError> {
        let bar = match stderr().is_terminal() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        let mut seen = 0;
        let mut next = None;
        while self.left > 0 {
            let part = store.walk(next, AT_ONCE).await?;
            seen += part.records.len();
            bar.set_message(format!("{seen} records read"));
            bar.tick();
            bar.suspend(|| self.take(part.records))?;
            next = part.next;
            if next.is_none() {
                break;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn take(&mut self, records: Vec<Record>) -> Result<(), BoxError> {
        for record in records {
            if self.left > 0 && self.wanted.takes(&record, self.namespace, self.now) {
                self.left -= 1;
                (self.tell)(record)?;
            }
        }
        Ok(())
    }
}
