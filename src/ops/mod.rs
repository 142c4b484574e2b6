//! What an operator does beside the running worker.

pub mod dev;
mod inspect;
mod send;
mod view;

pub use inspect::{inspect, list};
pub use send::{Line, Sent, send};
pub use view::RecordView;
