//! Logs: JSON lines in Lambda, text on a terminal.

use std::io::{IsTerminal, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

/// Starts logging by `RUST_LOG` (`info`, or `warn,onlyonce=debug`). Does nothing if the program
/// has started its own.
pub fn init() {
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => text.parse().unwrap_or_else(|_| default()),
        Err(_) => default(),
    };
    let started = if std::env::var_os("AWS_LAMBDA_FUNCTION_NAME").is_some() {
        let lines = fmt::layer().json().flatten_event(true).with_current_span(false);
        registry().with(filter).with(lines.with_span_list(false)).try_init()
    } else {
        let lines = fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
        registry().with(filter).with(lines).try_init()
    };
    if started.is_ok() {
        say_where_a_panic_was();
    }
}

/// A panic's message may quote a payload: it goes into the record, and here only its place.
fn say_where_a_panic_was() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, "a job panicked");
    }));
}
