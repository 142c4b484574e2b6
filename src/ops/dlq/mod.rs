//! The dead-letter queue: what is in it and why, and bringing it back.

mod command;
mod drawer;
mod letter;
mod replay;

pub use command::{DlqArguments, Queues};
pub(super) use drawer::Drawer;
pub(super) use letter::{Filter, Letter};
pub(super) use replay::{Plan, replay};
