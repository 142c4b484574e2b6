//! SQS and Lambda's poller in the process: at least once, as the real ones are.
//!
//! For trying a worker out and for tests of your own jobs: the messages take the same way through
//! event, front and service as in Lambda.

mod clock;
mod poller;
mod queue;

pub use clock::FastClock;
pub use poller::{Drained, Invocation, Poller};
pub use queue::{LocalQueue, QueueSettings};
