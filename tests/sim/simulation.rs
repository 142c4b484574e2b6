//! Thousands of seeds: order, timing and faults are all drawn from each.

use super::faults::Named;
use super::plan::Plan;
use super::run::run;
use super::seeds::{Sum, many, report};

/// What CI runs.
const SEEDS: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds, shows what they came to, and fails with all that one needs to find out why.
fn holds(seeds: u64, planned: fn(u64) -> Plan) -> Sum {
    let seeds = number("SIM_SEEDS").unwrap_or(seeds);
    let sum = many(number("SIM_FROM").unwrap_or(0), seeds, planned);
    println!("{sum}");
    if let Some(seed) = sum.failed {
        panic!("after {} seeds:\n{}", sum.seeds, report(planned(seed)));
    }
    sum
}

#[test]
fn no_seed_breaks_what_must_hold() {
    let sum = holds(SEEDS, Plan::new);
    for (named, count) in Named::ALL.iter().zip(sum.totals.0) {
        assert!(sum.renewals > 0 || sum.seeds < 1000, "no claim was renewed");
        assert!(count > 0 || sum.seeds < 1000, "{} never happened", named.as_str());
    }
}

/// The claim may be lost then, and handlers may overlap: what is fenced, and what a provider's key
/// or an intent decides, holds all the same.
#[test]
fn beyond_the_margin_what_rests_on_no_clock_holds() {
    holds(SEEDS / 10, Plan::beyond_the_margin);
}

/// Commits share requests, whose members die, hang and leave at any moment.
#[test]
fn over_shared_requests_no_seed_breaks_what_must_hold() {
    holds(SEEDS / 10, Plan::grouped);
}

#[test]
fn the_same_seed_is_the_same_trace() {
    for seed in 0..200 {
        let plan = Plan::new(seed);
        let (one, other) = (run(&plan, true), run(&plan, true));
        assert_eq!(one.story, other.story, "seed {seed}");
        assert_eq!(one.trace, other.trace, "seed {seed}");
    }
    assert_ne!(run(&Plan::new(1), false).trace, run(&Plan::new(2), false).trace);
}

fn shown(plan: Plan) {
    let ran = run(&plan, true);
    println!("{}", ran.story.join("\n"));
    assert!(ran.broken.is_empty(), "{}", report(plan));
}

/// Shows one seed: `SIM_SEED=n`.
#[test]
fn replay() {
    shown(Plan::new(number("SIM_SEED").unwrap_or(0)));
}

/// The same with clocks that differ by more than the margin.
#[test]
fn replay_beyond_the_margin() {
    shown(Plan::beyond_the_margin(number("SIM_SEED").unwrap_or(0)));
}

/// The same over shared requests.
#[test]
fn replay_over_shared_requests() {
    shown(Plan::grouped(number("SIM_SEED").unwrap_or(0)));
}
