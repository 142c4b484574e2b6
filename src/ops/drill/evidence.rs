//! What is known of a run once it is over: of each key what was sent, what the ledger keeps, what the
//! record says, and what is among the dead letters.

use crate::drill::{DrillKey, Kept, Row};
use crate::protocol::Record;

/// Why a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The first of its key.
    First,
    /// The same message once more.
    Copy,
    /// Another payload under the same key.
    Other,
    /// Brought back from the dead letters.
    Redriven,
}

/// What is known of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyEvidence {
    pub key: DrillKey,
    /// When each of its messages was sent, in milliseconds.
    pub sent: Vec<(u64, Sent)>,
    pub kept: Kept,
    pub record: Option<Record>,
    /// Why each of its messages that is a dead letter is one.
    pub letters: Vec<String>,
}

impl KeyEvidence {
    pub fn rows(&self) -> &[Row] {
        &self.kept.rows
    }

    /// How many of its messages were sent for this reason.
    pub fn sent(&self, why: Sent) -> usize {
        self.sent.iter().filter(|(_, sent)| *sent == why).count()
    }
}

/// What is known of a run.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub keys: Vec<KeyEvidence>,
    /// Messages that are still in the queue.
    pub left: usize,
    /// How long after a lease nobody may take over, as far as the rows' clocks can tell.
    pub margin_ms: u64,
    /// Whether the workers renew what they hold, and one of them can outlive its lease.
    pub has_pollers: bool,
}
