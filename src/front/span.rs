//! The span of one message: from before its claim to its settlement. No payload, no secret, no key.

use tracing::field::{Empty, display};
use tracing::{Span, info_span};

use crate::protocol::{RecordId, TraceParent};
use crate::service::{Delivery, Ending, Outcome, short};
use crate::telemetry::{SPANS, failed, follow};

/// Begins the span, in the trace its message belongs to. One of no trace is in that of its key, so
/// that all attempts are found together.
pub(super) fn begun(delivery: &Delivery, id: &RecordId, trace: Option<&TraceParent>) -> Span {
    let span = info_span!(
        target: SPANS,
        "job",
        otel.name = format!("job {}", short(&delivery.job)),
        otel.kind = "consumer",
        otel.status_code = Empty,
        onlyonce.job = short(&delivery.job),
        onlyonce.key_digest = id.as_str(),
        messaging.message.id = delivery.message_id,
        onlyonce.attempt = Empty,
        onlyonce.token = Empty,
        onlyonce.outcome = Empty,
    );
    follow(&span, trace, id);
    span
}

/// Notes how it ended.
pub(super) fn ended(span: &Span, outcome: &Outcome) {
    if span.is_disabled() {
        return;
    }
    if let (Some(attempt), Some(token)) = (outcome.attempt, outcome.token) {
        span.record("onlyonce.attempt", attempt);
        span.record("onlyonce.token", token);
    }
    span.record("onlyonce.outcome", display(outcome.name()));
    match outcome.ending {
        Ending::Released(_)
        | Ending::Failed(_)
        | Ending::FailedBefore(_)
        | Ending::Unknown(_)
        | Ending::Mismatch { .. }
        | Ending::Undecodable(_)
        | Ending::LostLease
        | Ending::Abandoned
        | Ending::StoreError => failed(span),
        Ending::Completed(_)
        | Ending::Replayed(_)
        | Ending::Ignored
        | Ending::Later(_)
        | Ending::Busy(_)
        | Ending::NotStarted
        | Ending::FailedAndQuarantined => {}
    }
}
