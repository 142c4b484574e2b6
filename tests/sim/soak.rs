//! The simulation for as long as one likes: `make soak SEEDS=n`. A program of its own, so that it
//! is built without what only other tests need.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "as a test, it fails by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "time is tokio's here, and paused")]

mod faults;
mod gate;
mod jobs;
mod plan;
mod provider;
mod run;
mod seeds;

use std::process::ExitCode;

use plan::Plan;

fn main() -> ExitCode {
    let number = |nth| std::env::args().nth(nth).and_then(|text| text.parse::<u64>().ok());
    let (seeds, from) = (number(1).unwrap_or(100_000), number(2).unwrap_or(0));
    // A tenth of them beyond the margin, and as many over shared requests.
    for (planned, seeds) in [
        (Plan::grouped as fn(u64) -> Plan, seeds / 10),
        (Plan::beyond_the_margin as fn(u64) -> Plan, seeds / 10),
        (Plan::new as fn(u64) -> Plan, seeds),
    ] {
        let sum = seeds::many(from, seeds, planned);
        if let Some(seed) = sum.failed {
            println!("{}\n{sum}", seeds::report(planned(seed)));
            return ExitCode::FAILURE;
        }
        println!("{sum}");
    }
    ExitCode::SUCCESS
}
