//! What one seed makes happen: all of it drawn before anything runs.

use super::faults::{KINDS, mixed};
use super::jobs::{JOBS, MOODS};

/// One message to be sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Milliseconds after the start.
    pub at: u64,
    pub job: &'static str,
    pub key: u64,
    pub mood: u8,
    /// How long its handler works between its effects, in milliseconds.
    pub work: u64,
    /// A payload other than that of the key's other messages.
    pub is_other: bool,
    pub group: u64,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub messages: Vec<Sent>,
    pub is_fifo: bool,
    pub visibility: u64,
    pub max_receives: u32,
    pub batch: usize,
    pub concurrency: usize,
    pub timeout: u64,
    /// By how many milliseconds each worker's clock is ahead of the slowest: within the margin.
    pub ahead: Vec<u64>,
    pub enabled: u64,
    pub chance: f64,
    pub most_faults: usize,
    /// How soon dead letters are first sent through again, in milliseconds.
    pub redriven_after: u64,
    /// For how many milliseconds at a time a claim is made and renewed; `None` as in Lambda.
    pub lease: Option<u64>,
    /// Whether commits that are ready together share a request.
    pub is_grouped: bool,
}

impl Plan {
    /// The same over a store whose commits gather, in batches of more messages.
    pub fn grouped(seed: u64) -> Self {
        let plan = Self::new(seed);
        Self { is_grouped: true, batch: 10, concurrency: plan.concurrency.max(4), ..plan }
    }

    /// The same with clocks that differ by more than the margin.
    pub fn beyond_the_margin(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(mixed(seed, 1));
        let ahead = vec![0, random.u64(6_000..60_000)];
        Self { ahead, ..Self::new(seed) }
    }

    /// Whether clocks differ by more than workers are told to reckon with.
    pub fn is_beyond_the_margin(&self) -> bool {
        self.ahead.iter().any(|ahead| *ahead > 5_000)
    }

    pub fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(mixed(seed, 0));
        let mut messages = Vec::new();
        for key in 0..random.u64(1..=4) {
            let job = JOBS[random.usize(..JOBS.len())];
            let mood = if random.bool() { random.u8(..MOODS) } else { 0 };
            let work = [0, 50, 500, 4000][random.usize(..4)];
            let group = random.u64(..2);
            for copy in 0..random.usize(1..=3) {
                let at = if random.bool() { 0 } else { random.u64(..90_000) };
                let is_other = copy > 0 && random.u8(..6) == 0;
                messages.push(Sent { at, job, key, mood, work, is_other, group });
            }
        }
        random.shuffle(&mut messages);
        messages.sort_by_key(|sent| sent.at);
        let timeout = [10_000, 30_000][random.usize(..2)];
        Self {
            seed,
            is_grouped: false,
            messages,
            is_fifo: random.u8(..3) == 0,
            // Lambda takes no queue that hides messages for less.
            visibility: timeout + [0, 10_000, 60_000][random.usize(..3)],
            max_receives: [4, 8, 25, 25][random.usize(..4)],
            batch: random.usize(1..=4),
            concurrency: random.usize(1..=4),
            timeout,
            ahead: (0..random.usize(1..=3)).map(|_| random.u64(..=5_000)).collect(),
            // Each fault in one seed of two: those that hide one another come apart.
            enabled: random.u64(..1 << KINDS),
            chance: [0.01, 0.05, 0.1, 0.25][random.usize(..4)],
            most_faults: random.usize(1..=14),
            redriven_after: [1_000, 4_000, 8_000, 60_000][random.usize(..4)],
            lease: (random.u8(..3) == 0).then(|| [1_000, 3_000, 8_000][random.usize(..3)]),
        }
    }
}
