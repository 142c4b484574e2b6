//! Many seeds, and what is told of one that fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

use super::faults::{KINDS, Totals};
use super::plan::Plan;
use super::run::{Ran, run};

/// What many seeds came to.
pub struct Sum {
    pub seeds: u64,
    pub violations: u64,
    pub totals: Totals,
    pub calls: u64,
    pub deliveries: u64,
    pub renewals: u64,
    /// Of all their traces: the same seeds make the same.
    pub trace: u64,
    /// The first that failed.
    pub failed: Option<u64>,
}

/// Runs seeds `from..from + seeds` on all cores, and stops soon after one has failed.
pub fn many(from: u64, seeds: u64, planned: fn(u64) -> Plan) -> Sum {
    quiet_panics();
    let next = AtomicU64::new(from);
    let sum = Mutex::new(Sum {
        seeds: 0,
        violations: 0,
        totals: Totals::none(),
        calls: 0,
        deliveries: 0,
        renewals: 0,
        trace: 0,
        failed: None,
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while sum.lock().unwrap().failed.is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        break;
                    }
                    let ran = run(&planned(seed), false);
                    let mut sum = sum.lock().unwrap();
                    sum.seeds += 1;
                    sum.calls += ran.calls as u64;
                    sum.deliveries += ran.deliveries;
                    sum.renewals += ran.renewals as u64;
                    sum.trace ^= ran.trace;
                    sum.totals.add(&ran.totals);
                    if !ran.broken.is_empty() {
                        sum.violations += 1;
                        sum.failed = Some(sum.failed.map_or(seed, |failed| failed.min(seed)));
                    }
                }
            });
        }
    });
    sum.into_inner().unwrap()
}

/// The smallest plan like this one that still fails, and what it came to.
fn shrunk(mut plan: Plan) -> (Plan, Ran) {
    let fails = |plan: &Plan| !run(plan, false).broken.is_empty();
    for _ in 0..3 {
        for at in (0..plan.messages.len()).rev() {
            let mut fewer = plan.clone();
            fewer.messages.remove(at);
            if fails(&fewer) {
                plan = fewer;
            }
        }
        for named in 0..KINDS {
            let fewer = Plan { enabled: plan.enabled & !(1 << named), ..plan.clone() };
            if fewer.enabled != plan.enabled && fails(&fewer) {
                plan = fewer;
            }
        }
        while plan.most_faults > 0 {
            let fewer = Plan { most_faults: plan.most_faults - 1, ..plan.clone() };
            if !fails(&fewer) {
                break;
            }
            plan = fewer;
        }
        while plan.ahead.len() > 1 {
            let fewer = Plan { ahead: plan.ahead[1..].to_vec(), ..plan.clone() };
            if !fails(&fewer) {
                break;
            }
            plan = fewer;
        }
        let plainer = Plan { concurrency: 1, batch: 1, ..plan.clone() };
        if fails(&plainer) {
            plan = plainer;
        }
    }
    let ran = run(&plan, true);
    (plan, ran)
}

/// All that a person needs to find out why.
pub fn report(plan: Plan) -> String {
    quiet_panics();
    let seed = plan.seed;
    let test = match (plan.is_grouped, plan.is_beyond_the_margin()) {
        (true, _) => "replay_over_shared_requests",
        (_, true) => "replay_beyond_the_margin",
        _ => "replay",
    };
    let (plan, ran) = shrunk(plan);
    format!(
        "seed {seed} breaks what must hold. Again:\n  SIM_SEED={seed} cargo test \
         --no-default-features --features test-util --test sim -- --nocapture --exact simulation::{test}\n\nshrunk to \
         {plan:#?}\nfaults:\n{}\n{}\n\n{}",
        ran.totals
            .lines()
            .lines()
            .filter(|it| !it.trim().starts_with("0 "))
            .collect::<Vec<_>>()
            .join("\n"),
        ran.story.join("\n"),
        ran.broken.join("\n")
    )
}

/// The panics that jobs are made to have are no news.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload().downcast_ref::<&str>() != Some(&"a bug") {
                told(panic);
            }
        }));
    });
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { deliveries, calls, renewals, totals, seeds, violations, trace, .. } = self;
        let faults = totals.sum();
        writeln!(
            f,
            "{deliveries} deliveries, {calls} calls, {renewals} renewals, trace {trace:016x}, {faults} faults:"
        )?;
        write!(f, "{}seeds: {seeds}, violations: {violations}", totals.lines())
    }
}
