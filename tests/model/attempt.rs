//! One attempt of a worker, always just before a call that crosses the boundary or a handler's
//! choice: that is where it may die.

use onlyonce::protocol::{ConditionalWrite, Doubt, Failure, Held};

use crate::config::{Config, ticks};
use crate::interned::Ref;

/// One attempt at one message, from its receipt to the answer to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    pub message: u8,
    /// Which of the messages that it became by redrives.
    pub redriven: u8,
    /// The number of its claim id.
    pub claim: u8,
    /// By the worker's clock.
    pub started: i16,
    /// When the message was enqueued, as received.
    pub sent: i16,
    pub held: Option<Ref<Held>>,
    /// A write of effects whose outcome is not known.
    pub in_doubt: Option<Ref<ConditionalWrite>>,
    pub has_unwritten: bool,
    pub effect: u8,
    /// What the handler came to.
    pub came: Came,
    /// How often the write at hand was sent.
    pub tries: u8,
    pub at: At,
}

/// What is to happen next: always one call that crosses the boundary, or a handler's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// A claim is written.
    Claim { write: Ref<ConditionalWrite>, won: Won },
    /// The handler comes to its next effect.
    Go,
    /// What is known of effects is written, then the effect is sent.
    Flush { send: Send },
    /// The effect is sent.
    Send(Send),
    /// The provider is asked.
    Ask { send: Send, first_sent: i16, why: Why },
    /// The handler returns.
    Return,
    /// What was in doubt as the handler ended is sent again.
    Certain,
    /// The attempt's end is written, with what is staged.
    Settle { write: Ref<ConditionalWrite>, verdict: Ended },
    /// A fused job's only write.
    Fused { write: Ref<ConditionalWrite>, verdict: Ended, held: Ref<Held> },
    /// The message is sent to the dead-letter queue.
    Quarantine { mark: Option<Ref<Held>> },
    /// The record is told so.
    Mark { write: Ref<ConditionalWrite> },
    /// The queue is told.
    Tell(Answer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Send {
    pub generation: u8,
    pub was_sent: bool,
}

/// Why an effect is not simply sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    Intent,
    ResultLost,
    WindowOver,
    OtherRequest,
}

impl From<Doubt> for Why {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::Intent => Self::Intent,
            Doubt::ResultLost => Self::ResultLost,
            Doubt::WindowOver => Self::WindowOver,
            Doubt::OtherRequest => Self::OtherRequest,
        }
    }
}

/// What a claim's write gains, should it land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Won {
    Held(Ref<Held>),
    /// The budget was spent.
    Parked(Ref<Held>, Ended),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Came {
    #[default]
    Ok,
    Retryable,
    RetryAfter(i16),
    Terminal,
    Cancelled,
    Unknown,
}

impl Came {
    /// As the protocol calls it.
    pub fn failure(self) -> Option<Failure> {
        Some(match self {
            Self::Ok => return None,
            Self::Retryable => Failure::Retryable,
            Self::RetryAfter(wait) => Failure::RetryAfter(ticks(wait)),
            Self::Terminal => Failure::Terminal,
            Self::Cancelled => Failure::Cancelled,
            Self::Unknown => Failure::Unknown,
        })
    }
}

/// Where an attempt ends once its write lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ended {
    Completed,
    Released(i16),
    Failed,
    Unknown,
}

/// What the queue is told of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    Ack,
    /// By the worker's clock.
    Retry(Option<i16>),
}

impl Attempt {
    /// Whether its handler is at work.
    pub fn is_in_handler(&self) -> bool {
        matches!(self.at, At::Go | At::Flush { .. } | At::Send(_) | At::Ask { .. } | At::Return)
    }

    /// Every claim it knows of, a bit each.
    pub fn claims(&self) -> u32 {
        let at = match self.at {
            At::Claim { write, .. }
            | At::Settle { write, .. }
            | At::Fused { write, .. }
            | At::Mark { write } => write.claims(),
            At::Quarantine { mark } => mark.map_or(0, Ref::claims),
            _ => 0,
        };
        let held = self.held.map_or(0, Ref::claims);
        let in_doubt = self.in_doubt.map_or(0, Ref::claims);
        let own = if matches!(self.at, At::Tell(_)) { 0 } else { 1 << self.claim };
        at | held | in_doubt | own
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
