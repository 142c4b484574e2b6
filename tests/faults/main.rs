//! The worker on the real AWS SDK, with faults on the wire between it and the service at
//! `AWS_ENDPOINT_URL`. Each outcome is checked past the faults.

#![cfg(feature = "lambda")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the SDK keeps to the machine's time, and so must these"
)]

mod bench;
mod grouped;
mod lost;
mod producer;
mod proxy;
mod queue;
mod refused;
mod slow;
