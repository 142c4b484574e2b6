//! x
#[cfg(feature = "lambda")]
pub mod config;
pub mod context;
pub mod effect;
pub mod error;
pub mod front;
pub mod handler;
#[cfg(feature = "lambda")]
pub mod lambda;
#[cfg(feature = "cli")]
pub mod ops;
pub mod payload;
pub mod protocol;
pub mod rules;
pub mod runtime;
#[cfg(any(feature = "dynamodb", feature = "secrets"))]
pub mod sdk;
#[cfg(feature = "http")]
pub mod secret;
pub mod service;
pub mod store;
#[cfg(feature = "telemetry")]
pub mod telemetry;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;

pub use error::BoxError;
