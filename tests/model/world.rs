//! Everything there is at one moment: records, messages, workers, providers, and what is on its way.

use onlyonce::protocol::{ConditionalWrite, Record};

use crate::attempt::Attempt;
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
