//! Where messages come in: read one by one, run side by side, answered for one by one.

mod answer;
mod asked;
mod batch;
mod envelope;
mod event;
mod hiding;
#[cfg(feature = "lambda")]
pub mod lambda;
mod lanes;
mod log;
mod message;
#[cfg(feature = "lambda")]
mod poll;
mod queue;
mod span;
#[cfg(feature = "lambda")]
mod sqs;
mod whole;

pub use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
#[cfg(feature = "lambda")]
pub(crate) use answer::answer_to;
#[cfg(any(test, feature = "test-util"))]
pub(crate) use answer::answer_within;
pub use answer::{BatchResponse, ItemFailure, answer};
#[cfg(feature = "cli")]
pub(crate) use asked::{Asked, asked};
pub use batch::run as run_batch;
pub use event::messages;
pub use message::{Asks, Attribute, AttributeValue, Message};
#[cfg(feature = "lambda")]
pub use poll::Poll;
#[cfg(feature = "cli")]
pub(crate) use poll::read;
pub(crate) use queue::carried;
pub use queue::{ATTRIBUTE_UNIQUE, Delay, Mark, Placed, QUARANTINE_ATTRIBUTE, Queue};
#[cfg(feature = "lambda")]
pub use sqs::SqsQueue;

#[cfg(any(test, fuzzing))]
#[path = "fuzz_tests.rs"]
pub(crate) mod fuzz;
