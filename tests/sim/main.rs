//! The real front and service in a world of its own: killed at every call, and by the thousand
//! seeds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "time is tokio's here, and paused")]

mod crash_points;
mod faults;
mod gate;
mod jobs;
mod plan;
mod provider;
mod run;
mod seeds;
mod simulation;
