//! Where messages come in: read one by one, run side by side, answered for one by one.

mod asked;
mod batch;
mod envelope;
mod event;
#[cfg(feature = "lambda")]
pub mod lambda;
mod log;
mod message;
mod queue;
#[cfg(feature = "lambda")]
mod sqs;

pub use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY};
pub use batch::run as run_batch;
pub use event::messages;
pub use message::{Attribute, AttributeValue, Message};
pub use queue::{Delay, Mark, Placed, QUARANTINE_ATTRIBUTE, Queue};
#[cfg(feature = "lambda")]
pub use sqs::SqsQueue;
