//! What was reached at least once, over all configurations: every row of the claim table, every
//! decision and every kind of action. What no configuration reaches is not checked by any.

use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! points {
    ($($point:ident = $text:literal,)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Point { $($point,)+ }

        const NAMES: &[&str] = &[$($text,)+];
    };
}

points! {
    // The claim table, a row each.
    Create = "claim: there is no record",
    Held = "claim: my own",
    Expired = "claim: past its expiry",
    Mismatch = "claim: another payload",
    Replay = "claim: completed",
    ParkedUnknown = "claim: unknown",
    Reopened = "claim: failed, enqueued later",
    StrayPending = "claim: failed, a stray copy, not yet in quarantine",
    StraySent = "claim: failed, a stray copy, in quarantine",
    Later = "claim: released, before its time",
    Due = "claim: released, due",
    Busy = "claim: claimed, lease and skew not over",
    SpentFailed = "claim: claimed, over, attempts spent",
    SpentUnknown = "claim: claimed, over, attempts spent, an open intent",
    TakenOver = "claim: claimed, over",
    // How effects begin and end.
    BeginDone = "effect: done before",
    BeginFirst = "effect: for the first time",
    BeginAgain = "effect: again under its key",
    BeginAnew = "effect: under a new key",
    DoubtIntent = "effect: open intent",
    DoubtResult = "effect: its result is lost",
    DoubtWindow = "effect: its window is over",
    DoubtRequest = "effect: another request",
    LeftIntent = "effect: left as intent",
    LeftSent = "effect: left as sent",
    LeftUnsent = "effect: left as unsent",
    LeftRejected = "effect: left as rejected",
    // How attempts end.
    Completed = "verdict: completed",
    Released = "verdict: released",
    Failed = "verdict: failed",
    Unknown = "verdict: unknown",
    PassedOver = "verdict: unknown, an open intent was passed over",
    ConflictApplied = "conflict: applied before",
    ConflictLost = "conflict: the lease is lost",
    // Actions.
    Tick = "action: time passes",
    Receive = "action: a worker receives",
    StoreOk = "action: a write is answered",
    StoreRequestLost = "action: a write does not arrive",
    StoreReplyLost = "action: a write's reply is lost",
    StoreLate = "action: a write is delayed",
    StoreRefused = "action: a staged write is refused",
    EffectOk = "action: an effect is answered",
    EffectRequestLost = "action: an effect does not arrive",
    EffectReplyLost = "action: an effect's reply is lost",
    EffectLate = "action: an effect is delayed",
    EffectDeclined = "action: an effect is declined",
    EffectNotSent = "action: an effect is not sent",
    EffectTurnedAway = "action: an effect is turned away",
    EffectUnclear = "action: an effect ends for good, unclear",
    AskOk = "action: a provider says",
    AskUnknown = "action: a provider cannot say",
    AskLost = "action: a provider is not reached",
    GoOn = "action: a handler comes to its effects",
    ReturnOk = "action: a handler returns",
    ReturnRetryable = "action: a handler fails",
    ReturnTerminal = "action: a handler gives up",
    Stopped = "action: a handler is stopped",
    StoppedMidway = "action: a handler is stopped in the middle of a call",
    NoTime = "action: no time is left for a write",
    Crash = "action: a crash between calls",
    CrashMidway = "action: a crash in the middle of a call",
    QuarantineOk = "action: a message goes to quarantine",
    QuarantineRequestLost = "action: a message does not arrive in quarantine",
    QuarantineReplyLost = "action: quarantine's reply is lost",
    Told = "action: the queue is told",
    ToldLost = "action: the queue does not hear",
    LateWrite = "action: a delayed write arrives",
    LateEffect = "action: a delayed effect arrives",
    Redeliver = "action: an early redelivery",
    Redrive = "action: a redrive",
    QueueRedrive = "action: the queue's own redrive policy",
    Delete = "action: TTL deletes a record",
}

static SEEN: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];

pub fn reached(point: Point) {
    let seen = &SEEN[point as usize];
    // Two threads come here at every step: a plain load leaves the line shared.
    if !seen.load(Ordering::Relaxed) {
        seen.store(true, Ordering::Relaxed);
    }
}

/// How many points there are, and the names of those never reached.
pub fn report() -> (usize, Vec<&'static str>) {
    let missed = NAMES.iter().zip(&SEEN).filter(|(_, seen)| !seen.load(Ordering::Relaxed));
    (NAMES.len(), missed.map(|(name, _)| *name).collect())
}
