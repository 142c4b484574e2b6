//! A line of the ledger: what one worker did with one key, and when.

use serde::{Deserialize, Serialize};

use super::scenario::{Point, Write};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// A claim was written: a first one, or a take-over.
    Claimed { token: u64, attempt: u32, lease_until: u64 },
    /// A message came, and its record was there already, in this status.
    Met { status: String },
    /// The claim was renewed.
    Renewed { token: u64, lease_until: u64 },
    /// The effect was called. Every call is put down before it is made.
    Called { token: u64, key: String, request: String },
    /// The provider has answered; whether it did anything, or knew the key.
    Answered { token: u64, is_first: bool },
    /// The end of an attempt was written.
    Settled { token: u64, status: String },
    /// The end of an attempt was refused: the claim is another's.
    Refused { token: u64 },
    /// The worker is about to die here.
    Crash { point: Point },
    /// The answer to a write that landed is about to be lost.
    AnswerLost { to: Write },
    /// The worker stands still, its completion not yet sent.
    Stalled { token: u64 },
    /// It goes on, and sends it.
    WentOn { token: u64 },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// When, in milliseconds, by the worker's clock.
    pub at: u64,
    /// The process.
    pub worker: String,
    #[serde(flatten)]
    pub event: Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_back_as_it_was_put_down() {
        let text = || "completed".to_owned();
        for event in [
            Event::Claimed { token: 2, attempt: 1, lease_until: 9 },
            Event::Met { status: text() },
            Event::Renewed { token: 2, lease_until: 9 },
            Event::Called { token: 1, key: "k".to_owned(), request: "1".to_owned() },
            Event::Answered { token: 1, is_first: true },
            Event::Settled { token: 1, status: text() },
            Event::Refused { token: 1 },
            Event::Crash { point: Point::AfterClaim },
            Event::AnswerLost { to: Write::Completion },
            Event::Stalled { token: 1 },
            Event::WentOn { token: 1 },
        ] {
            let row = Row { at: 7, worker: "w".to_owned(), event };
            let json = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<Row>(&json).unwrap(), row, "{json}");
        }
    }
}
