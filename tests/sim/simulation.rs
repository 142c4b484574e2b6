//! Thousands of seeds: order, timing and faults are all drawn from each.

use super::faults::Named;
use super::plan::Plan;
use super::run::run;
use super::seeds::{many, report};

/// What CI runs.
const SEEDS: u64 = 20_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_seed_breaks_what_must_hold() {
    let sum = many(number("SIM_FROM").unwrap_or(0), number("SIM_SEEDS").unwrap_or(SEEDS));
    println!(
        "{} seeds, {} deliveries, {} calls, {} faults:\n{}",
        sum.seeds,
        sum.deliveries,
        sum.calls,
        sum.totals.sum(),
        sum.totals.lines()
    );
    if let Some(seed) = sum.failed {
        panic!("after {} seeds:\n{}", sum.seeds, report(seed));
    }
    for (named, count) in Named::ALL.iter().zip(sum.totals.0) {
        assert!(count > 0 || sum.seeds < 1000, "{} never happened", named.as_str());
    }
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

/// Shows one seed: `SIM_SEED=n`.
#[test]
fn replay() {
    let seed = number("SIM_SEED").unwrap_or(0);
    let ran = run(&Plan::new(seed), true);
    if ran.broken.is_empty() {
        println!("{}", ran.story.join("\n"));
    } else {
        panic!("{}", report(seed));
    }
    assert_eq!(ran.story.len(), ran.calls + ran.story.iter().filter(|it| it.starts_with("really")).count());
}
