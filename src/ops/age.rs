//! How long ago something was.

use std::time::Duration;

use clap::Args;

use crate::protocol::Timestamp;

/// Between two ages.
#[derive(Args, Clone, Debug, Default)]
pub struct Ages {
    /// What has been so for at least so long: 90s, 2h, 3d.
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(super) older: Option<Duration>,
    /// What has been so for at most so long.
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    pub(super) newer: Option<Duration>,
}

impl Ages {
    /// Whether what has been so since `at` is of that age.
    pub(super) fn take(&self, at: Timestamp, now: Timestamp) -> bool {
        let age = now.since(at);
        self.older.is_none_or(|least| age >= least) && self.newer.is_none_or(|most| age <= most)
    }
}
