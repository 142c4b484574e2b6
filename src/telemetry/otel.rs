//! Traces, sent by OTLP over HTTP to the endpoint that the environment names.

use std::cell::Cell;
use std::sync::OnceLock;

use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Context, Key};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing::{Span, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use super::otlp::Client;
use super::spans::SPANS;
use crate::protocol::{RecordId, Timestamp, TraceParent};
use crate::runtime::{Clock, before, blocking};

/// What the program's one subscriber hands its spans to.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// What takes spans, if the environment names an endpoint for them.
pub(super) fn layer() -> Result<Option<impl Layer<Registry> + Send + Sync>, String> {
    if !is_wanted(&|name| std::env::var(name).ok()) {
        return Ok(None);
    }
    let client = Client::new()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .build()
        .map_err(|error| error.to_string())?;
    let provider = SdkTracerProvider::builder()
        .with_id_generator(Ids(RandomIdGenerator::default()))
        .with_resource(resource())
        .with_batch_exporter(exporter)
        .build();
    let tracer = provider.tracer("onlyonce");
    // A second one is of a program that has its own subscriber already, and takes nothing.
    let _ = PROVIDER.set(provider);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(SPANS, LevelFilter::INFO));
    Ok(Some(layer))
}

/// Whether traces are to be sent. Without a named endpoint they are not: nobody may listen at the
/// protocol's default.
fn is_wanted(env: &dyn Fn(&str) -> Option<String>) -> bool {
    let get = |name| env(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let is_off = get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
        || get("OTEL_TRACES_EXPORTER").is_some_and(|text| text == "none");
    let is_named = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    !is_off && is_named.into_iter().any(|name| get(name).is_some())
}

/// What the spans are of: by the standard variables, or else the name that metrics have, too.
fn resource() -> Resource {
    let standard = Resource::builder().build();
    let name = standard.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return standard;
    }
    let named = ["ONLYONCE_SERVICE", "AWS_LAMBDA_FUNCTION_NAME"];
    let name = named.into_iter().find_map(|name| std::env::var(name).ok());
    Resource::builder().with_service_name(name.unwrap_or_else(|| "worker".to_owned())).build()
}

/// Sends the spans that have ended, or gives up at `by`. Workers that are served do so by themselves;
/// this is for a program that hands messages to a worker on its own.
pub async fn flush_traces(clock: &dyn Clock, by: Timestamp) {
    let Some(provider) = PROVIDER.get().cloned() else {
        return;
    };
    let mut flushing = blocking(move || provider.force_flush());
    match before(clock, by, flushing.join()).await {
        Some(Ok(Ok(()))) => {}
        Some(Ok(Err(error))) => warn!(%error, "traces were not sent"),
        Some(Err(_)) => warn!("traces were not sent"),
        None => warn!("traces were not sent in time"),
    }
}

thread_local! {
    /// The trace of the root span that is being started.
    static TRACE: Cell<Option<TraceId>> = const { Cell::new(None) };
}

/// Random ids, but for the trace of a key.
#[derive(Debug)]
struct Ids(RandomIdGenerator);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TRACE.take().unwrap_or_else(|| self.0.new_trace_id())
    }

    fn new_span_id(&self) -> SpanId {
        self.0.new_span_id()
    }
}

/// Puts a span into the trace of its message; or, without one, at the root of the trace whose id is
/// the first half of its key's digest, the same for each attempt.
pub(super) fn follow(span: &Span, trace: Option<&TraceParent>, id: &RecordId) {
    if span.is_disabled() {
        return;
    }
    match trace.and_then(remote) {
        // An error says that nobody takes spans.
        Some(parent) => drop(span.set_parent(parent)),
        None => {
            TRACE.set(id.as_str().get(..32).and_then(|half| TraceId::from_hex(half).ok()));
            // It is started by being looked at.
            let _ = span.context();
            TRACE.set(None);
        }
    }
}

fn remote(trace: &TraceParent) -> Option<Context> {
    let mut fields = trace.as_str().split('-').skip(1);
    let (trace, parent, flags) = (fields.next()?, fields.next()?, fields.next()?);
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(parent).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
        true,
        TraceState::default(),
    );
    Some(Context::new().with_remote_span_context(context))
}

/// Where the current span stands.
pub(super) fn here() -> Option<TraceParent> {
    let context = Span::current().context();
    let span = context.span();
    let at = span.span_context();
    let text = format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8());
    // One that is not there has ids of zeros, which are none.
    TraceParent::new(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_sent_where_an_endpoint_is_named_and_nobody_forbids_it() {
        let wanted = |set: &[(&str, &str)]| {
            is_wanted(&|name| {
                set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        assert!(!wanted(&[]));
        assert!(wanted(&[endpoint]));
        assert!(wanted(&[(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://127.0.0.1:4318/v1/traces"
        )]));
        assert!(!wanted(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]));
        assert!(!wanted(&[endpoint, ("OTEL_SDK_DISABLED", "True")]));
        assert!(!wanted(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]));
    }

    #[test]
    fn a_traceparent_is_a_remote_parent_as_it_is() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = remote(&TraceParent::new(text).unwrap()).unwrap();
        let span = context.span();
        let at = span.span_context();
        assert!(at.is_remote() && at.is_sampled());
        assert_eq!(at.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(at.span_id().to_string(), "00f067aa0ba902b7");
    }
}
