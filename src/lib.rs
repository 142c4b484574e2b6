#![doc = include_str!("../README.md")]

#[cfg(any(feature = "lambda", feature = "jobs-file"))]
pub mod config;
pub mod context;
#[cfg(feature = "lambda")]
mod drill;
pub mod effect;
pub mod error;
pub mod front;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod handler;
#[cfg(feature = "lambda")]
pub mod lambda;
pub mod local;
#[cfg(feature = "cli")]
pub mod ops;
pub mod outbox;
pub mod payload;
#[cfg(feature = "producer")]
pub mod producer;
pub mod protocol;
pub mod relay;
pub mod rules;
pub mod runtime;
#[cfg(any(
    feature = "dynamodb",
    feature = "producer",
    feature = "secrets",
    feature = "ses",
    feature = "aws-effects"
))]
pub mod sdk;
#[cfg(feature = "http")]
pub mod secret;
#[cfg(feature = "lambda")]
mod serve;
pub mod service;
pub mod store;
pub mod telemetry;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;

pub use context::Context;
pub use error::{BoxError, Error, ErrorKind, HandlerError};
pub use handler::{Job, Router};
pub use payload::Payload;
pub use protocol::{EffectKey, IdempotencyKey, Retention, RetryPolicy};
#[cfg(feature = "cli")]
pub use serve::main;
#[cfg(feature = "lambda")]
pub use serve::serve;
pub use service::Worker;
