//! Spans: of a message, its effects and its writes. One costs nothing where nobody takes them:
//! [`init`](super::init) leaves them out of the log and gives them to OpenTelemetry alone.

use tracing::Span;

use crate::protocol::{RecordId, TraceParent};

/// The target of every span.
pub const SPANS: &str = "onlyonce::span";

/// Notes that what the span stands for has failed.
pub(crate) fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// Puts a span that has just been made into the trace of its message, or else into that of its key.
pub(crate) fn follow(span: &Span, trace: Option<&TraceParent>, id: &RecordId) {
    #[cfg(feature = "otel")]
    super::otel::follow(span, trace, id);
    #[cfg(not(feature = "otel"))]
    let _ = (span, trace, id);
}

/// Where the current span stands, for what it causes.
pub(crate) fn here() -> Option<TraceParent> {
    #[cfg(feature = "otel")]
    return super::otel::here();
    #[cfg(not(feature = "otel"))]
    None
}
