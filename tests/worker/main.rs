//! Whole messages through a worker, in virtual time, on the memory store: the cases from the field
//! that need no network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod batches;
mod claims;
mod effects;
mod endings;
mod fused;
mod intents;
mod keyed;
mod kit;
mod local_queue;
mod messages;
mod metrics;
mod renewal;
