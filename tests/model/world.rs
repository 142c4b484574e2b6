//! Everything there is at one moment: records, messages, workers, providers, and what is on its way.

use onlyonce::protocol::{ConditionalWrite, Doubt, Failure, Held, Record};

use crate::interned::Ref;

pub const KEYS: usize = 2;
pub const MESSAGES: usize = 3;
pub const WORKERS: usize = 3;
pub const EFFECTS: usize = 2;
pub const GENERATIONS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// True time.
    pub now: i16,
    /// How many things may still go wrong.
    pub faults: u8,
    pub redrives: u8,
    pub records: [Option<Ref<Record>>; KEYS],
    pub messages: [Message; MESSAGES],
    pub workers: [Option<Attempt>; WORKERS],
    pub accounts: [[Account; EFFECTS]; KEYS],
    pub past: [Past; KEYS],
    pub late_write: Option<Write>,
    pub late_effect: Option<LateEffect>,
    /// Which properties a step has broken, a bit each.
    pub broken: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    pub place: Place,
    /// When it was enqueued last: a redrive is a new message.
    pub sent: i16,
    pub receives: u8,
    /// How often it was moved back from the dead-letter queue, as a new message each time.
    pub redriven: u8,
    /// Whether a copy is in the dead-letter queue.
    pub is_dead: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Place {
    #[default]
    NotSent,
    /// Visible in so many ticks.
    Queued(u8),
    Gone,
}

/// What a provider has done under one effect of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Account {
    /// How often it took effect.
    pub runs: u8,
    /// What it remembers under each generation's key.
    pub keys: [Known; GENERATIONS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Known {
    #[default]
    Nothing,
    Done {
        at: i16,
        body: u8,
    },
    Declined,
}

/// What has happened to a key since its record was made, for ever true whatever the record says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Past {
    /// How often its staged row landed.
    pub staged: u8,
    pub is_completed: bool,
    /// Before its record expired.
    pub was_completed: bool,
    /// The payload that ran first.
    pub payload: Option<u8>,
}

/// A write on its way, and whether a staged row goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub write: Ref<ConditionalWrite>,
    pub key: u8,
    pub is_staged: bool,
}

/// A request on its way to a provider, of a worker that no longer waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LateEffect {
    pub request: Request,
    /// It arrives by then or never.
    pub by: i16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    pub key: u8,
    pub effect: u8,
    pub generation: u8,
    /// What stands in its body.
    pub body: u8,
}

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
            Self::RetryAfter(wait) => Failure::RetryAfter(crate::config::ticks(wait)),
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
        matches!(
            self.at,
            At::Go | At::Flush { .. } | At::Send(_) | At::Ask { .. } | At::Return
        )
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

impl World {
    /// The number of a claim id that nothing remembers: as good as a random one, and the world
    /// stays finite.
    pub fn fresh_claim(&self) -> u8 {
        let records = self.records.iter().flatten().fold(0, |all, record| all | record.claims());
        let workers = self.workers.iter().flatten().fold(0, |all, attempt| all | attempt.claims());
        let late = self.late_write.map_or(0, |late| late.write.claims());
        u8::try_from((records | workers | late).trailing_ones()).expect("32 at most")
    }

    pub fn is_idle(&self) -> bool {
        self.workers.iter().all(Option::is_none)
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.is_idle() && self.messages.iter().all(|message| message.place == Place::Gone)
    }

    /// What nobody looks at again must not tell worlds apart.
    pub fn forget_what_is_past(&mut self, clocks: &[i16]) {
        // Nor who does it, where workers are the same.
        if clocks.iter().all(|clock| *clock == clocks[0]) {
            self.workers[..clocks.len()].sort_unstable();
        }
        for message in &mut self.messages {
            if message.place == Place::Gone {
                (message.sent, message.receives) = (0, 0);
            }
        }
    }

    /// Nothing has happened yet.
    pub fn new(faults: u8, redrives: u8) -> Self {
        Self {
            now: 0,
            faults,
            redrives,
            records: [None; KEYS],
            messages: Default::default(),
            workers: [None; WORKERS],
            accounts: Default::default(),
            past: Default::default(),
            late_write: None,
            late_effect: None,
            broken: 0,
        }
    }
}
