//! Which actions a world allows: a worker does one call at a time, and things may go wrong with each.

use crate::actions::{Action, Midway, Reply, Said, Wire};
use crate::attempt::{At, Attempt, Came};
use crate::calls::Limits;
use crate::config::{Config, PATIENCE, fault, stamp};
use crate::world::{Message, Place, World};

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
        let is_hidden = |message: &Message| matches!(message.place, Place::Queued(1..));
        out.extend(messages(config, s, is_hidden).map(|message| Action::Redeliver { message }));
    }
    if s.redrives > 0 {
        let is_parked = |m: &Message| m.is_dead && m.place == Place::Gone;
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
    which: impl Fn(&Message) -> bool + 'a,
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
            send(may(fault::EFFECT_LOST), Reply::AnswerLost);
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
