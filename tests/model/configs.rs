//! One configuration for each class of effect, and some for what is common to all.

use crate::config::fault::*;
use crate::config::{Config, Kind};

const WITHIN: &[i16] = &[0, 1];
const BEYOND: &[i16] = &[0, 3];
const KEYED: Kind = Kind::Keyed { window: None };
const WINDOW: Kind = Kind::Keyed { window: Some(2) };
const ASKED: Kind = Kind::KeyedOrAsk { window: Some(2) };
const ALL: u32 = CRASH | STOP | STORE;
const EFFECT: u32 = EFFECT_LOST | EFFECT_LATE;
const REFUSAL: u32 = DECLINED | NOT_SENT | UNCLEAR;

/// Two workers whose clocks differ, a message and its duplicate, and two things that go wrong.
const BASE: Config = Config {
    name: "",
    clocks: WITHIN,
    messages: &[(0, 1, 0), (0, 1, 0)],
    effects: &[],
    is_staged: false,
    is_fused: false,
    attempts: 3,
    may: ALL,
    faults: 2,
    redrives: 0,
    horizon: 3,
    has_dlq: true,
    receives: 0,
    retention: None,
    keeps_results: true,
    varies: false,
};

pub fn all() -> Vec<Config> {
    let mut all = of_classes();
    all.extend(of_everything_else());
    all
}

fn of_classes() -> Vec<Config> {
    vec![
        Config { name: "staged", is_staged: true, may: ALL | REFUSED, ..BASE },
        Config {
            name: "fused, three workers",
            clocks: &[0, 0, 0],
            messages: &[(0, 1, 0), (0, 1, 0), (0, 1, 0)],
            is_staged: true,
            is_fused: true,
            may: CRASH | STORE | REFUSED | RETRYABLE | TERMINAL,
            horizon: 1,
            ..BASE
        },
        Config { name: "keyed", effects: &[KEYED], may: CRASH | EFFECT_LATE, ..BASE },
        Config {
            name: "keyed, refusals and redrives",
            messages: &[(0, 1, 0)],
            effects: &[KEYED],
            may: CRASH | EFFECT | REFUSAL,
            redrives: 2,
            ..BASE
        },
        Config {
            name: "keyed, a window",
            messages: &[(0, 1, 0)],
            effects: &[WINDOW],
            may: CRASH | EFFECT,
            horizon: 5,
            ..BASE
        },
        Config {
            name: "keyed or asked",
            messages: &[(0, 1, 0)],
            effects: &[ASKED],
            may: CRASH | STORE_REPLY | EFFECT | PROBE,
            ..BASE
        },
        Config {
            name: "keyed, other bytes",
            messages: &[(0, 1, 0)],
            effects: &[KEYED],
            may: CRASH | EFFECT,
            varies: true,
            ..BASE
        },
        Config {
            name: "at least once",
            effects: &[Kind::AtLeastOnce],
            may: CRASH | EFFECT_LOST,
            ..BASE
        },
        Config {
            name: "at most once",
            effects: &[Kind::AtMostOnce],
            may: ALL | EFFECT | REFUSAL,
            messages: &[(0, 1, 0)],
            redrives: 1,
            ..BASE
        },
        Config {
            name: "reconcile",
            effects: &[Kind::Reconcile],
            may: ALL | EFFECT | PROBE,
            messages: &[(0, 1, 0)],
            ..BASE
        },
        Config {
            name: "results lost",
            effects: &[Kind::AtMostOnce, Kind::Reconcile],
            may: CRASH | RETRYABLE,
            messages: &[(0, 1, 0)],
            keeps_results: false,
            ..BASE
        },
        Config {
            name: "at least once, keyed, staged",
            effects: &[Kind::AtLeastOnce, KEYED],
            is_staged: true,
            messages: &[(0, 1, 0)],
            may: ALL | EFFECT | REFUSED,
            ..BASE
        },
    ]
}

fn of_everything_else() -> Vec<Config> {
    vec![
        Config {
            name: "three workers",
            clocks: &[0, 0, 0],
            messages: &[(0, 1, 0), (0, 1, 0), (0, 1, 0)],
            is_staged: true,
            may: CRASH | RETRYABLE,
            faults: 1,
            horizon: 2,
            ..BASE
        },
        Config {
            name: "two keys, another payload",
            messages: &[(0, 1, 0), (0, 2, 0), (1, 1, 0)],
            effects: &[KEYED],
            clocks: &[0, 0],
            may: CRASH,
            faults: 1,
            horizon: 2,
            ..BASE
        },
        Config {
            name: "quarantine and redrive",
            messages: &[(0, 1, 0)],
            effects: &[Kind::AtLeastOnce],
            attempts: 1,
            may: CRASH | TERMINAL | RETRYABLE | QUARANTINE | TELL | REDELIVER,
            redrives: 1,
            ..BASE
        },
        Config {
            name: "a budget of one, at most once",
            effects: &[Kind::AtMostOnce],
            attempts: 1,
            may: CRASH | QUARANTINE,
            ..BASE
        },
        Config {
            name: "passed over",
            effects: &[Kind::AtMostOnce],
            messages: &[(0, 1, 0)],
            may: CRASH | SKIP,
            ..BASE
        },
        Config {
            name: "no dead-letter queue of ours",
            effects: &[Kind::AtLeastOnce],
            messages: &[(0, 1, 0)],
            may: CRASH | TERMINAL | TELL,
            has_dlq: false,
            receives: 3,
            ..BASE
        },
        Config {
            name: "expiry",
            clocks: &[0, 0],
            messages: &[(0, 1, 0), (0, 1, 2)],
            effects: &[Kind::AtMostOnce],
            may: CRASH | STORE_LATE,
            retention: Some(1),
            faults: 1,
            horizon: 4,
            ..BASE
        },
        Config {
            name: "beyond the margin, staged",
            clocks: BEYOND,
            effects: &[KEYED],
            is_staged: true,
            may: CRASH | STORE,
            faults: 1,
            ..BASE
        },
        Config {
            name: "beyond the margin, intents",
            clocks: BEYOND,
            effects: &[Kind::AtMostOnce, Kind::Reconcile],
            messages: &[(0, 1, 0)],
            may: CRASH | REDELIVER,
            ..BASE
        },
    ]
}
