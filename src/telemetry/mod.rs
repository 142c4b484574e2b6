//! What a worker tells of itself: metrics, logs and, with the feature `otel`, traces.
//!
//! Nothing of it carries a payload, a secret or a key.

mod emf;
#[cfg(feature = "telemetry")]
mod logs;
mod meter;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
mod otlp;
mod series;
mod spans;
#[cfg(feature = "lambda")]
mod teller;

pub use emf::Emf;
#[cfg(feature = "telemetry")]
pub use logs::init;
pub(crate) use meter::Timed;
pub use meter::{Count, Latency, Meter};
#[cfg(feature = "otel")]
pub use otel::flush_traces;
pub use spans::SPANS;
pub(crate) use spans::{failed, follow, here};
#[cfg(feature = "lambda")]
pub(crate) use teller::Teller;
