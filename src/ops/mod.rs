//! What an operator does beside the running worker.
#![doc = include_str!("../docs/operating.md")]

mod age;
pub mod dev;
mod dlq;
mod doctor;
mod drill;
mod ending;
mod import;
mod inspect;
mod lines;
mod list;
mod operate;
mod reader;
mod send;
mod send_file;
mod setup;
mod timeline;
mod view;

pub use dlq::{DlqArguments, Queues};
pub use doctor::DoctorArguments;
pub use drill::DrillArguments;
pub use ending::{NO_QUEUE, Usage, end};
pub use import::{ImportLine, ImportReport, import, import_file};
pub use inspect::inspect;
pub use lines::read_lines;
pub use list::ListArguments;
pub use operate::{Desk, OperateVerb, RecordName, Refused};
pub use reader::end_with_the_reader;
pub use send::MessageLine;
pub use send_file::{SendPlan, send_file};
pub use setup::SetupArguments;
pub use timeline::{Moment, instant};
pub use view::RecordView;
