//! What may happen: a step of one worker, of the queue, of the network or of time.

use crate::attempt::{At, Came};
use crate::calls::Limits;
use crate::config::{Config, stamp};
use crate::coverage::Point;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Tick,
    Receive {
        worker: u8,
        message: u8,
    },
    /// The write at hand is sent.
    Store {
        worker: u8,
        wire: Wire,
    },
    /// The effect is sent.
    Effect {
        worker: u8,
        reply: Reply,
    },
    /// The provider is asked.
    Ask {
        worker: u8,
        reply: Said,
    },
    /// The handler goes on to its next effect.
    GoOn {
        worker: u8,
    },
    Return {
        worker: u8,
        came: Came,
    },
    /// The handler is stopped: its time is over, or the worker is asked to end.
    Stop {
        worker: u8,
        midway: Midway,
    },
    /// There is no time left to send the write at hand.
    NoTime {
        worker: u8,
    },
    Quarantine {
        worker: u8,
        wire: Wire,
    },
    Tell {
        worker: u8,
        is_heard: bool,
    },
    Crash {
        worker: u8,
        midway: Midway,
    },
    LateWrite,
    LateEffect,
    /// The queue delivers a message again before its time.
    Redeliver {
        message: u8,
    },
    /// A person moves a message back from the dead-letter queue.
    Redrive {
        message: u8,
    },
    /// TTL removes a record that has expired.
    Delete {
        key: u8,
    },
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
    AnswerLost,
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
                Reply::AnswerLost => Point::EffectReplyLost,
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
