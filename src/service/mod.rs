//! One message: claim, call, settle.

mod attempt;
mod commits;
mod outcome;
mod worker;

pub(crate) use commits::Commits;
pub use outcome::{Cause, Disposition, Ending, Outcome};
pub use worker::{Deadline, Delivery, Worker, WorkerBuilder};
