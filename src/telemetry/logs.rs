//! Logs: JSON lines in Lambda, text on a terminal.

use std::io::{IsTerminal, stderr};
use std::sync::Once;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

use super::spans::SPANS;
use crate::runtime::is_lambda;

type Taker = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging by `RUST_LOG` (`info`, or `warn,onlyonce=debug`) and, in a build with the feature
/// `otel`, sending traces to where the environment says. Does nothing if the program has started its
/// own, or has asked before.
pub fn init() {
    static STARTED: Once = Once::new();
    STARTED.call_once(start);
}

fn start() {
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => text.parse().unwrap_or_else(|_| default()),
        Err(_) => default(),
    };
    let filter = filter.with_target(SPANS, LevelFilter::OFF);
    let lines: Taker = if is_lambda() {
        let lines = fmt::layer().json().flatten_event(true).with_current_span(false);
        lines.with_span_list(false).with_filter(filter).boxed()
    } else {
        let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
        lines.with_filter(filter).boxed()
    };
    let traces = traces();
    let (traces, fault) = match traces {
        Ok(traces) => (traces, None),
        Err(fault) => (None, Some(fault)),
    };
    let takers: Vec<Taker> = [Some(lines), traces].into_iter().flatten().collect();
    if registry().with(takers).try_init().is_ok() {
        say_where_a_panic_was();
    }
    if let Some(error) = fault {
        tracing::error!(error, "traces cannot be sent; correct the OTEL_EXPORTER_OTLP_ variables");
    }
}

/// What takes the spans.
fn traces() -> Result<Option<Taker>, String> {
    #[cfg(feature = "otel")]
    return Ok(super::otel::layer()?.map(Layer::boxed));
    #[cfg(not(feature = "otel"))]
    Ok(None)
}

/// A panic's message may quote a payload: it goes into the record, and here only its place.
fn say_where_a_panic_was() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "a job panicked");
    }));
}
