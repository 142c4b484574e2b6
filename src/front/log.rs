//! One line per message: ids, digests and times; no payload, no secret, no key.

use tracing::info;

use super::batch::Answer;
use super::message::Message;
use crate::protocol::Timestamp;
use crate::service::{Cause, Ending, Outcome};

/// Says how a message ended. A handler's own error text may quote a payload: it is in the record,
/// and in the log at `debug` only.
pub(super) fn ended(
    message: &Message,
    outcome: &Outcome,
    quarantined: Option<Cause>,
    answer: Answer,
    begun: Timestamp,
    now: Timestamp,
) {
    let (answer, retry_at) = match answer {
        Answer::Ack => ("ack", None),
        Answer::Retry(at) => ("retry", at.map(Timestamp::millis)),
    };
    // Ours to tell: these texts quote nothing.
    let reason = match &outcome.ending {
        Ending::Undecodable(why) => Some(why),
        Ending::StoreError => outcome.error.as_ref(),
        _ => None,
    };
    info!(
        message_id = message.id,
        job = outcome.job,
        key_digest = outcome.id.as_ref().map(|id| id.as_str()),
        token = outcome.token,
        attempt = outcome.attempt,
        outcome = outcome.name(),
        reason,
        quarantined = quarantined.map(tracing::field::display),
        answer,
        retry_at,
        queued_ms = message.sent_at.map(|sent| millis(begun, sent)),
        took_ms = millis(now, begun),
        "job"
    );
    if let Some(error) = &outcome.error {
        tracing::debug!(message_id = message.id, error, "job");
    }
}

fn millis(later: Timestamp, earlier: Timestamp) -> u64 {
    later.millis().saturating_sub(earlier.millis())
}
