//! What may happen next. A worker does one call at a time; a crash, a lost request and a lost reply
//! may fall on each.

use crate::config::{Config, PATIENCE, fault, stamp};
use crate::coverage::Point;
use crate::calls::Limits;
use crate::world::{At, Attempt, Came, Ended, Place, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Receive { worker: u8, message: u8 },
    /// The write at hand is sent.
    Store { worker: u8, wire: Wire },
    /// The effect is sent.
    Effect { worker: u8, reply: Reply },
    /// The provider is asked.
    Ask { worker: u8, reply: Said },
    /// The handler goes on to its next effect.
    GoOn { worker: u8 },
    Return { worker: u8, came: Came },
    /// The handler is stopped: its time is over, or the worker is asked to end.
    Stop { worker: u8, midway: Midway },
    /// There is no time left to send the write at hand.
    NoTime { worker: u8 },
    Quarantine { worker: u8, wire: Wire },
    Tell { worker: u8, is_heard: bool },
    Crash { worker: u8, midway: Midway },
    LateWrite,
    LateEffect,
    /// The queue delivers a message again before its time.
    Redeliver { message: u8 },
    /// A person moves a message back from the dead-letter queue.
    Redrive { message: u8 },
    /// TTL removes a record that has expired.
    Delete { key: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Ok,
    RequestLost,
    ReplyLost,
    /// The worker hears nothing, and the request arrives some time.
    Late,
    /// The condition of a staged write does not hold.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Ok,
    RequestLost,
    ReplyLost,
    Late,
    Declined,
    /// It did not reach the provider, for certain.
    NotSent,
    /// The same, and trying again cannot help.
    TurnedAway,
    /// Trying again cannot help, and it may have happened.
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Truth,
    Unknown,
    NoAnswer,
}

/// What became of the call that was under way as a worker died or was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Midway {
    /// It was not made.
    Before,
    Arrived,
    Late,
}

impl Action {
    pub fn point(self) -> Point {
        match self {
            Self::Tick => Point::Tick,
            Self::Receive { .. } => Point::Receive,
            Self::Store { wire, .. } => match wire {
                Wire::Ok => Point::StoreOk,
                Wire::RequestLost => Point::StoreRequestLost,
                Wire::ReplyLost => Point::StoreReplyLost,
                Wire::Late => Point::StoreLate,
                Wire::Refused => Point::StoreRefused,
            },
            Self::Effect { reply, .. } => match reply {
                Reply::Ok => Point::EffectOk,
                Reply::RequestLost => Point::EffectRequestLost,
                Reply::ReplyLost => Point::EffectReplyLost,
                Reply::Late => Point::EffectLate,
                Reply::Declined => Point::EffectDeclined,
                Reply::NotSent => Point::EffectNotSent,
                Reply::TurnedAway => Point::EffectTurnedAway,
                Reply::Unclear => Point::EffectUnclear,
            },
            Self::Ask { reply, .. } => match reply {
                Said::Truth => Point::AskOk,
                Said::Unknown => Point::AskUnknown,
                Said::NoAnswer => Point::AskLost,
            },
            Self::GoOn { .. } => Point::GoOn,
            Self::Return { came: Came::Ok, .. } => Point::ReturnOk,
            Self::Return { came: Came::Terminal, .. } => Point::ReturnTerminal,
            Self::Return { .. } => Point::ReturnRetryable,
            Self::Stop { midway: Midway::Before, .. } => Point::Stopped,
            Self::Stop { .. } => Point::StoppedMidway,
            Self::NoTime { .. } => Point::NoTime,
            Self::Crash { midway: Midway::Before, .. } => Point::Crash,
            Self::Crash { .. } => Point::CrashMidway,
            Self::Quarantine { wire: Wire::Ok, .. } => Point::QuarantineOk,
            Self::Quarantine { wire: Wire::ReplyLost, .. } => Point::QuarantineReplyLost,
            Self::Quarantine { .. } => Point::QuarantineRequestLost,
            Self::Tell { is_heard: true, .. } => Point::Told,
            Self::Tell { is_heard: false, .. } => Point::ToldLost,
            Self::LateWrite => Point::LateWrite,
            Self::LateEffect => Point::LateEffect,
            Self::Redeliver { .. } => Point::Redeliver,
            Self::Redrive { .. } => Point::Redrive,
            Self::Delete { .. } => Point::Delete,
        }
    }
}

/// Everything that may happen in a world.
pub fn actions(config: &Config, s: &World, out: &mut Vec<Action>) {
    let may = |kind: u32| s.faults > 0 && config.may & kind != 0;
    for (worker, at) in (0u8..).zip(config.clocks) {
        match s.workers[usize::from(worker)] {
            Some(attempt) => of_worker(config, s, (worker, &attempt), &may, out),
            // Idle workers of one clock are as good as one another.
            None if (0..usize::from(worker))
                .any(|other| s.workers[other].is_none() && config.clocks[other] == *at) => {}
            None => out.extend(
                messages(config, s, |message| message.place == Place::Queued(0))
                    .filter(|message| !has_twin(config, s, usize::from(*message)))
                    .map(|message| Action::Receive { worker, message }),
            ),
        }
    }
    if s.late_write.is_some() {
        out.push(Action::LateWrite);
    }
    if s.late_effect.is_some() {
        out.push(Action::LateEffect);
    }
    if may(fault::REDELIVER) {
        let is_hidden = |message: &crate::world::Message| {
            matches!(message.place, Place::Queued(1..))
        };
        out.extend(messages(config, s, is_hidden).map(|message| Action::Redeliver { message }));
    }
    if s.redrives > 0 {
        let is_parked = |m: &crate::world::Message| m.is_dead && m.place == Place::Gone;
        out.extend(messages(config, s, is_parked).map(|message| Action::Redrive { message }));
    }
    if config.retention.is_some() {
        out.extend((0u8..).zip(&s.records).filter_map(|(key, record)| {
            // The store knows nothing of leases and intents; what it may not delete has no expiry.
            let expiry = record.as_ref()?.get().expires_at?;
            expiry.is_past(stamp(s.now)).then_some(Action::Delete { key })
        }));
    }
    if time_passes(config, s) {
        out.push(Action::Tick);
    }
}

fn messages<'a>(
    config: &'a Config,
    s: &'a World,
    which: impl Fn(&crate::world::Message) -> bool + 'a,
) -> impl Iterator<Item = u8> + 'a {
    let all = (0u8..).zip(&s.messages[..config.messages.len()]);
    all.filter(move |(_, message)| which(message)).map(|(at, _)| at)
}

/// Whether an earlier message is the same in all: one of them is enough to look at.
fn has_twin(config: &Config, s: &World, message: usize) -> bool {
    let is_free = |message: usize| {
        let mut held = s.workers.iter().flatten();
        !held.any(|attempt| usize::from(attempt.message) == message)
    };
    is_free(message)
        && (0..message).any(|twin| {
            config.messages[twin] == config.messages[message]
                && s.messages[twin] == s.messages[message]
                && is_free(twin)
        })
}

/// Up to the horizon time may pass at any moment: every worker may be slow. Then only where
/// there is nothing else to do, so that everything comes to its end.
fn time_passes(config: &Config, s: &World) -> bool {
    let messages = &s.messages[..config.messages.len()];
    let is_over = s.is_idle() && messages.iter().all(|message| message.place == Place::Gone);
    let may_come_back = s.redrives > 0 && messages.iter().any(|message| message.is_dead);
    if s.now < config.horizon {
        return !is_over || may_come_back;
    }
    let is_waiting = messages.iter().any(|message| message.place == Place::Queued(0));
    s.now < config.horizon + PATIENCE && !is_over && s.is_idle() && !is_waiting
}

fn of_worker(
    config: &Config,
    s: &World,
    (worker, attempt): (u8, &Attempt),
    may: &impl Fn(u32) -> bool,
    out: &mut Vec<Action>,
) {
    let now = stamp(s.now + config.clocks[usize::from(worker)]);
    let limits = Limits::of(attempt);
    let is_store = attempt.is_at_store();
    let is_call = is_store || matches!(attempt.at, At::Send(_));
    let has_late_room = if is_store { s.late_write.is_none() } else { s.late_effect.is_none() };
    let may_be_late = has_late_room
        && config.may & (if is_store { fault::STORE_LATE } else { fault::EFFECT_LATE }) != 0;
    let stops = attempt.is_in_handler() && now >= limits.stop;
    // A stopped handler makes no call, and nobody writes after the attempt's time.
    let last_call = if attempt.is_in_handler() { limits.stop } else { limits.until };
    let ends = [(fault::CRASH, false), (fault::STOP, true)];
    for (kind, is_stop) in ends {
        let is_due = is_stop && stops;
        if !(is_due || may(kind) && (!is_stop || attempt.is_in_handler())) {
            continue;
        }
        let end = |midway| {
            if is_stop { Action::Stop { worker, midway } } else { Action::Crash { worker, midway } }
        };
        out.push(end(Midway::Before));
        if is_call && may(kind) && now < last_call {
            out.push(end(Midway::Arrived));
            if may_be_late {
                out.push(end(Midway::Late));
            }
        }
    }
    if stops {
        return;
    }
    if is_store {
        if now >= limits.until {
            return out.push(Action::NoTime { worker });
        }
        let mut send = |is_possible: bool, wire| {
            if is_possible {
                out.push(Action::Store { worker, wire });
            }
        };
        send(true, Wire::Ok);
        send(may(fault::STORE_REQUEST), Wire::RequestLost);
        send(may(fault::STORE_REPLY), Wire::ReplyLost);
        send(may(fault::STORE_LATE) && has_late_room, Wire::Late);
        send(may(fault::REFUSED) && attempt.is_staged(config), Wire::Refused);
        return;
    }
    match attempt.at {
        At::Send(_) => {
            let mut send = |is_possible: bool, reply| {
                if is_possible {
                    out.push(Action::Effect { worker, reply });
                }
            };
            send(true, Reply::Ok);
            send(may(fault::EFFECT_LOST), Reply::RequestLost);
            send(may(fault::EFFECT_LOST), Reply::ReplyLost);
            send(may(fault::EFFECT_LATE) && has_late_room, Reply::Late);
            send(may(fault::DECLINED), Reply::Declined);
            send(may(fault::NOT_SENT), Reply::NotSent);
            send(may(fault::NOT_SENT), Reply::TurnedAway);
            send(may(fault::UNCLEAR), Reply::Unclear);
        }
        At::Ask { .. } => {
            out.push(Action::Ask { worker, reply: Said::Truth });
            if may(fault::PROBE) {
                out.push(Action::Ask { worker, reply: Said::Unknown });
                out.push(Action::Ask { worker, reply: Said::NoAnswer });
            }
        }
        At::Go => {
            out.push(Action::GoOn { worker });
            // A handler that passes over its effects, as after a change of its code.
            if may(fault::SKIP) && attempt.held.is_some_and(|held| held.get().attempt > 1) {
                out.push(Action::Return { worker, came: Came::Ok });
            }
        }
        At::Return => {
            out.push(Action::Return { worker, came: Came::Ok });
            if may(fault::RETRYABLE) {
                out.push(Action::Return { worker, came: Came::Retryable });
            }
            if may(fault::TERMINAL) {
                out.push(Action::Return { worker, came: Came::Terminal });
            }
        }
        At::Quarantine { .. } => {
            out.push(Action::Quarantine { worker, wire: Wire::Ok });
            if may(fault::QUARANTINE) {
                out.push(Action::Quarantine { worker, wire: Wire::RequestLost });
                out.push(Action::Quarantine { worker, wire: Wire::ReplyLost });
            }
        }
        At::Tell(_) => {
            out.push(Action::Tell { worker, is_heard: true });
            if may(fault::TELL) {
                out.push(Action::Tell { worker, is_heard: false });
            }
        }
        _ => {}
    }
}

impl Attempt {
    /// Whether its next call is a write.
    pub fn is_at_store(&self) -> bool {
        matches!(
            self.at,
            At::Claim { .. }
                | At::Flush { .. }
                | At::Certain
                | At::Settle { .. }
                | At::Fused { .. }
                | At::Mark { .. }
        )
    }

    /// Whether a staged row goes with its next write.
    pub fn is_staged(&self, config: &Config) -> bool {
        config.is_staged
            && matches!(
                self.at,
                At::Settle { verdict: Ended::Completed, .. }
                    | At::Fused { verdict: Ended::Completed, .. }
            )
    }
}

impl Action {
    /// Whether it is one of those things that go wrong a limited number of times.
    pub fn is_fault(self, config: &Config, s: &World) -> bool {
        match self {
            Self::Store { wire, .. } | Self::Quarantine { wire, .. } => wire != Wire::Ok,
            Self::Effect { reply, .. } => reply != Reply::Ok,
            Self::Ask { reply, .. } => reply != Said::Truth,
            Self::Return { worker, came } => {
                let at = s.workers[usize::from(worker)].map(|attempt| attempt.at);
                came != Came::Ok || at == Some(At::Go)
            }
            // Time stops it in any case.
            Self::Stop { worker, .. } => s.workers[usize::from(worker)].is_some_and(|attempt| {
                let now = stamp(s.now + config.clocks[usize::from(worker)]);
                now < Limits::of(&attempt).stop
            }),
            Self::Tell { is_heard, .. } => !is_heard,
            Self::Crash { .. } | Self::Redeliver { .. } => true,
            Self::Tick
            | Self::Receive { .. }
            | Self::GoOn { .. }
            | Self::NoTime { .. }
            | Self::LateWrite
            | Self::LateEffect
            | Self::Redrive { .. }
            | Self::Delete { .. } => false,
        }
    }
}
