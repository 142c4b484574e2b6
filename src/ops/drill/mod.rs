//! The drill: a queue's worst days, played on a worker that counts everything it does, and a verdict.
//!
//! Here is the command: what it starts, what it sends, and how it judges. What the worker does for it
//! is in `src/drill/`.

mod command;
mod director;
mod emulator;
mod evidence;
mod html;
mod invariant;
mod judge;
mod load;
mod place;
mod play;
mod post;
mod process;
mod report;
mod sight;
mod svg;
mod text;
mod workers;

pub use command::DrillArguments;
