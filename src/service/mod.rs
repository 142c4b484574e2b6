//! One message: claim, call, settle.

mod attempt;
mod commits;
mod fused;
mod outcome;
mod renewal;
mod run;
mod stopping;
mod worker;

pub(crate) use attempt::{Around, short};
pub(crate) use commits::{Commits, Settled};
pub use outcome::{Cause, Disposition, Ending, Outcome};
pub(crate) use renewal::Hidden;
pub use worker::{Deadline, Delivery, SKEW, UniqueRow, Worker, WorkerBuilder};
