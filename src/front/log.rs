//! One line per message: ids, digests and times; no payload, no secret, no key.

use tracing::info;

use super::message::Message;
use crate::protocol::Timestamp;
use crate::service::{Disposition, Outcome};

/// Says how a message ended. `error` texts come from handlers and may quote a payload: they are in
/// the record, and in the log at `debug` only.
pub(super) fn ended(
    message: &Message,
    outcome: &Outcome,
    disposition: &Disposition,
    begun: Timestamp,
    now: Timestamp,
) {
    let (answer, retry_at) = match disposition {
        Disposition::Ack => ("ack", None),
        Disposition::Retry(at) => ("retry", at.map(Timestamp::millis)),
        Disposition::Quarantine { .. } => ("left-to-redrive", None),
    };
    info!(
        message_id = message.id,
        job = outcome.job,
        key_digest = outcome.id.as_ref().map(|id| id.as_str()),
        token = outcome.token,
        attempt = outcome.attempt,
        outcome = outcome.name(),
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
