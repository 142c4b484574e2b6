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
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(mixed(seed, 0));
        let mut messages = Vec::new();
        for key in 0..random.u64(1..=4) {
            let job = JOBS[random.usize(..JOBS.len())];
            let mood = if random.u8(..3) == 0 { random.u8(..MOODS) } else { 0 };
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
        Self {
            seed,
            messages,
            is_fifo: random.u8(..3) == 0,
            visibility: [8_000, 20_000, 40_000, 70_000][random.usize(..4)],
            max_receives: [4, 8, 25, 25][random.usize(..4)],
            batch: random.usize(1..=4),
            concurrency: random.usize(1..=4),
            timeout: [10_000, 30_000][random.usize(..2)],
            ahead: (0..random.usize(1..=3)).map(|_| random.u64(..=5_000)).collect(),
            // Each fault in one seed of two: those that hide one another come apart.
            enabled: random.u64(..1 << KINDS),
            chance: [0.01, 0.05, 0.1, 0.25][random.usize(..4)],
            most_faults: random.usize(1..=14),
        }
    }
}
