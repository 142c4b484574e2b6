//! What a configuration bounds, and what it lets go wrong.

use std::time::Duration;

use onlyonce::protocol::{EffectClass, Retention, RetryPolicy, Timestamp};

/// Time passes in steps of this; the protocol sees milliseconds.
pub const TICK: Duration = Duration::from_millis(1000);
/// How long an attempt has.
pub const LEASE: i16 = 2;
/// How far clocks may differ.
pub const SKEW: i16 = 1;
/// How long a received message is hidden.
pub const HIDDEN: u8 = 3;
/// How often a write is sent whose outcome is not certain.
pub const TRIES: u8 = 2;
/// For how long after it was sent a delayed effect may still arrive.
pub const DELAY: i16 = 1;
/// For how long a request may still take effect, as a handler declares it: counted from when the effect
/// began, so an attempt's time counts, and what clocks may differ by.
pub const SETTLES: i16 = LEASE + DELAY + SKEW;
/// A state in which time has come this far beyond the horizon is one that goes on for ever.
pub const PATIENCE: i16 = 40;

/// The class of an effect, as a handler declares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Keyed { window: Option<i16> },
    KeyedOrAsk { window: Option<i16> },
    AtMostOnce,
    Reconcile,
    AtLeastOnce,
}

impl Kind {
    pub fn class(self) -> EffectClass {
        match self {
            Self::Keyed { window } | Self::KeyedOrAsk { window } => {
                EffectClass::Keyed { window: window.map(ticks) }
            }
            Self::AtMostOnce | Self::Reconcile => EffectClass::Intended,
            Self::AtLeastOnce => EffectClass::Repeated,
        }
    }

    pub fn is_keyed(self) -> bool {
        matches!(self, Self::Keyed { .. } | Self::KeyedOrAsk { .. })
    }

    /// For how long the provider remembers a key: the window is looked at as the effect begins, so it
    /// must be longer than declared by an attempt, by what clocks differ, and by a request's way.
    pub fn remembered(self) -> Option<i16> {
        match self {
            Self::Keyed { window } | Self::KeyedOrAsk { window } => {
                window.map(|window| window + LEASE + SKEW + DELAY)
            }
            _ => None,
        }
    }
}

pub fn ticks(n: i16) -> Duration {
    TICK * u32::try_from(n).expect("no time is negative")
}

const START: u64 = 1_000_000_000;

/// The instant of a tick.
pub fn stamp(tick: i16) -> Timestamp {
    let ms = i64::from(tick) * i64::try_from(TICK.as_millis()).expect("short");
    Timestamp::from_millis(START.saturating_add_signed(ms))
}

/// The first tick that is not before an instant.
pub fn tick(at: Timestamp) -> i16 {
    let tick = u64::try_from(TICK.as_millis()).expect("short");
    let start = START - 100 * tick;
    i16::try_from((at.millis() - start).div_ceil(tick)).expect("near") - 100
}

/// Things that go wrong, a bit each; every one that happens costs one of `faults`.
pub mod fault {
    pub const CRASH: u32 = 1;
    pub const STOP: u32 = 1 << 1;
    pub const STORE_REQUEST: u32 = 1 << 2;
    pub const STORE_REPLY: u32 = 1 << 3;
    pub const STORE_LATE: u32 = 1 << 4;
    pub const STORE: u32 = STORE_REQUEST | STORE_REPLY | STORE_LATE;
    pub const REFUSED: u32 = 1 << 5;
    pub const EFFECT_LOST: u32 = 1 << 6;
    pub const EFFECT_LATE: u32 = 1 << 7;
    pub const DECLINED: u32 = 1 << 8;
    pub const NOT_SENT: u32 = 1 << 9;
    pub const UNCLEAR: u32 = 1 << 10;
    pub const PROBE: u32 = 1 << 11;
    pub const RETRYABLE: u32 = 1 << 12;
    pub const TERMINAL: u32 = 1 << 13;
    pub const QUARANTINE: u32 = 1 << 14;
    pub const TELL: u32 = 1 << 15;
    pub const REDELIVER: u32 = 1 << 16;
    pub const SKIP: u32 = 1 << 17;
}

/// A message: its key, its payload, and when it is sent.
pub type Sent = (u8, u8, i16);

#[derive(Clone, Debug)]
pub struct Config {
    pub name: &'static str,
    /// One for each worker: how far its clock is ahead.
    pub clocks: &'static [i16],
    pub messages: &'static [Sent],
    pub effects: &'static [Kind],
    /// Whether a row is staged.
    pub is_staged: bool,
    pub is_fused: bool,
    pub attempts: u32,
    /// What may go wrong, and how often in all.
    pub may: u32,
    pub faults: u8,
    pub redrives: u8,
    /// From here on time passes only where nothing else is left to do.
    pub horizon: i16,
    /// Whether workers have a dead-letter queue to send to.
    pub has_dlq: bool,
    /// After so many receives the queue's own redrive policy takes a message; 0 for never.
    pub receives: u8,
    /// In ticks.
    pub retention: Option<i16>,
    /// Whether results fit in the record.
    pub keeps_results: bool,
    /// A handler that makes its request from more than the payload, against the rules.
    pub varies: bool,
}

impl Config {
    /// Whether no two clocks differ by more than the margin.
    pub fn is_within_margin(&self) -> bool {
        let first = self.clocks.iter().min().copied().unwrap_or_default();
        self.clocks.iter().all(|clock| clock - first <= SKEW)
    }

    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy::fixed(ticks(1), self.attempts)
    }

    pub fn retention(&self) -> Retention {
        self.retention.map_or(Retention::Forever, |kept| Retention::For(ticks(kept)))
    }
}
