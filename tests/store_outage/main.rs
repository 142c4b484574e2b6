//! A store's server that goes down in the middle of a run, for real, and comes back on what it had
//! on its disk: nothing is taken as done meanwhile, and everything is done once afterwards.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "postgres")]
mod bench;

#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "postgres")]
#[path = "../servers/postgres.rs"]
mod server;
