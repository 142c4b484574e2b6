//! What an operator does beside the running worker.

pub mod dev;
mod import;
mod inspect;
mod send;
mod view;

pub use import::{ImportLine, ImportReport, import};
pub use inspect::{inspect, list};
pub use send::{Line, Sent, send};
pub use view::RecordView;
