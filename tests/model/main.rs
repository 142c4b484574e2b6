//! Every crash, every interleaving, every lost reply, within bounds: the protocol's own functions
//! under a model of workers, queue, store and providers, exhausted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod actions;
mod attempt;
mod calls;
mod config;
mod configs;
mod coverage;
mod handler;
mod interned;
mod model;
mod moves;
mod properties;
mod provider;
mod told;
mod worker;
mod world;

use std::fmt::Write;

use onlyonce::runtime::{Clock, SystemClock};
use stateright::{Checker, HasDiscoveries, Model};

use config::Config;
use interned::Ref;
use model::Protocol;

const AT_LEAST: usize = 1_000_000;

#[test]
fn no_crash_and_no_interleaving_breaks_an_invariant() {
    let mut states = 0;
    // To look into some of them; it fails all the same, since those alone do not reach everything.
    let wanted = std::env::var("MODEL").unwrap_or_default();
    for config in configs::all() {
        if config.name.contains(&wanted) {
            states += exhausted(config);
        }
    }
    let (points, missed) = coverage::report();
    println!(
        "{states} states; {} of {points} rows, decisions and actions reached",
        points - missed.len()
    );
    assert!(missed.is_empty(), "never reached: {missed:#?}");
    assert!(states >= AT_LEAST, "{states} states");
}

/// The number of states of one configuration, none of which breaks a property.
fn exhausted(config: Config) -> usize {
    let name = config.name;
    let checker =
        Protocol::new(config).checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let begun = SystemClock.now();
    let checker = checker.spawn_bfs().join();
    let seconds = SystemClock.now().since(begun).as_secs_f64();
    let states = checker.unique_state_count();
    println!("{name:<28} {states:>9} states, depth {:>3}, {seconds:>5.1} s", checker.max_depth());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let mut trace = String::new();
        for (state, action) in path.into_vec() {
            let _ = match action {
                Some(action) => writeln!(trace, "{:>3}  {action:?}", state.now),
                None => writeln!(
                    trace,
                    "{state:#?}\n{:#?}",
                    state.records.map(|record| record.map(Ref::get))
                ),
            };
        }
        panic!("{name}: {property}, after {states} states:\n{trace}");
    }
    states
}
