//! What an operator does beside the running worker.
#![doc = include_str!("../docs/operating.md")]

pub mod dev;
mod dlq;
mod drill;
mod import;
mod inspect;
mod lines;
mod operate;
mod reader;
mod send;
mod send_file;
mod timeline;
mod view;

pub use dlq::{DlqArguments, Queues};
pub use drill::DrillArguments;
pub use import::{ImportLine, ImportReport, import, import_file};
pub use inspect::{inspect, list};
pub use lines::read_lines;
pub use operate::{Desk, OperateVerb, Refused};
pub use reader::end_with_the_reader;
pub use send::MessageLine;
pub use send_file::{SendPlan, send_file};
pub use timeline::{Moment, instant};
pub use view::RecordView;
