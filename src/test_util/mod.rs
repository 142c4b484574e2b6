//! For tests of your own jobs: time, randomness and a store in a test's hand, and a check that
//! kills a job at every point where that could hurt.
//!
//! [`check_crash_points`] is where to begin. What it is made of is here, too: a [`World`] runs the
//! real front and service over a queue, a store and providers of its own, in which a [`Gate`]
//! decides what becomes of each call, and a [`Witness`] checks what must hold whatever does.

mod boundary;
mod crash;
mod crossing;
mod fault_store;
mod gated;
mod grouped;
mod report;
mod story;
mod time;
mod witness;
mod world;

pub use boundary::{Crossing, Fate, Gate, Kind};
pub use crash::{CrashPoints, check_crash_points};
pub use fault_store::{Fault, FaultStore};
pub use grouped::GroupedStore;
pub use report::{BrokenCase, CrashReport, EffectCount, Ended};
pub use story::{EffectStory, Story};
pub use time::{SeededEntropy, VirtualClock};
pub use witness::{Broken, Witness};
pub use world::{World, operation};
