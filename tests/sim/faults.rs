//! What may go wrong, by name, and how often it did.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Declares an enum whose variants have one shown name each.
macro_rules! named {
    ($($variant:ident = $text:literal,)+) => {
        /// A thing that goes wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Named { $($variant,)+ }

        impl Named {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

named! {
    DiedBefore = "died before a call",
    DiedAfter = "died after a call",
    DiedBetween = "died at another await",
    StoreLostRequest = "store: request lost",
    StoreLostReply = "store: reply lost",
    StoreHung = "store: hung before",
    StoreHungAfter = "store: hung after",
    StoreLate = "store: landed later",
    StoreContended = "store: contention",
    StoreRefused = "store: refused",
    Slow = "slow call",
    QueueLost = "queue: request lost",
    QueueReplyLost = "queue: reply lost",
    Throttled = "queue: received, never handed on",
    Duplicated = "queue: delivered again early",
    AnswerLost = "queue: answer lost",
    AnswerGarbled = "queue: answer garbled",
    SendLost = "provider: request lost",
    SendReplyLost = "provider: answer lost",
    Late = "provider: request under way for long",
    Declined = "provider: declined",
    Replayed500 = "provider: failed, and says so again",
    Unwilling = "provider: throttled",
    CannotSay = "provider: cannot say",
}

pub const KINDS: usize = Named::ALL.len();

/// Totals by fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals(pub [u64; KINDS]);

impl Totals {
    pub fn none() -> Self {
        Self([0; KINDS])
    }

    pub fn add(&mut self, more: &Self) {
        self.0.iter_mut().zip(more.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn lines(&self) -> String {
        let line = |(named, count): (&Named, u64)| format!("{count:>12}  {}\n", named.as_str());
        Named::ALL.iter().zip(self.0).map(line).collect()
    }
}

/// Decides what goes wrong in one run.
pub struct Faults {
    seed: u64,
    /// Which may happen: one bit each.
    enabled: u64,
    /// How likely each is, where it may.
    chance: f64,
    /// After this many nothing goes wrong any more.
    most: usize,
    happened: AtomicUsize,
    totals: [AtomicU64; KINDS],
}

impl Faults {
    pub fn new(seed: u64, enabled: u64, chance: f64, most: usize) -> Self {
        let totals = std::array::from_fn(|_| AtomicU64::new(0));
        Self { seed, enabled, chance, most, happened: AtomicUsize::new(0), totals }
    }

    /// Randomness for event `number` of a kind: the same whatever else goes wrong.
    pub fn random(&self, stream: u64, number: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(mixed(mixed(self.seed, stream), number))
    }

    /// Whether this goes wrong now, `weight` times as likely as others.
    pub fn hits(&self, named: Named, weight: f64, random: &mut fastrand::Rng) -> bool {
        let drawn = random.f64() < self.chance * weight;
        let is_enabled = self.enabled & (1 << named as u64) != 0;
        if !drawn || !is_enabled || self.happened.load(Ordering::Relaxed) >= self.most {
            return false;
        }
        self.happened.fetch_add(1, Ordering::Relaxed);
        self.totals[named as usize].fetch_add(1, Ordering::Relaxed);
        true
    }

    /// From now on all is well.
    pub fn stop(&self) {
        self.happened.store(usize::MAX / 2, Ordering::Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals(std::array::from_fn(|at| self.totals[at].load(Ordering::Relaxed)))
    }
}

/// One seed out of two: SplitMix64.
pub fn mixed(seed: u64, with: u64) -> u64 {
    let mut z = seed
        .wrapping_add(with.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
