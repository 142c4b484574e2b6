//! The real front and service in a world of its own: killed at every call, and by the thousand
//! seeds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod crash_points;
