//! Records, claims and writes as references that cost nothing to copy, compare and hash: a world is
//! cloned millions of times, and there are a few thousand different records.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock};

use onlyonce::protocol::{Change, ClaimId, ConditionalWrite, Expect, Field, Held, Record};

/// One value and its number. Values live as long as the test.
pub struct Entry<T> {
    number: u32,
    claims: u32,
    value: T,
}

/// Equal values have the same one.
pub struct Ref<T: 'static>(&'static Entry<T>);

impl<T> Ref<T> {
    pub fn get(self) -> &'static T {
        &self.0.value
    }

    /// The claims it names, a bit each.
    pub fn claims(self) -> u32 {
        self.0.claims
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl<T> Eq for Ref<T> {}

impl<T> PartialOrd for Ref<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ref<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.number.cmp(&other.0.number)
    }
}

impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.0.number);
    }
}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0.number)
    }
}

type Known<T> = LazyLock<RwLock<HashMap<&'static T, Ref<T>>>>;

pub trait Interned: Hash + Eq + Sized + 'static {
    fn known() -> &'static Known<Self>;
    fn claims(&self) -> u32;

    fn interned(self) -> Ref<Self> {
        let known = Self::known();
        if let Some(found) = known.read().unwrap_or_else(PoisonError::into_inner).get(&self) {
            return *found;
        }
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&self) {
            return *found;
        }
        let number = u32::try_from(known.len()).expect("few values");
        let entry = Box::leak(Box::new(Entry { number, claims: self.claims(), value: self }));
        known.insert(&entry.value, Ref(entry));
        Ref(entry)
    }
}

/// The claim id of number `n`.
pub fn claim_id(n: u8) -> ClaimId {
    ClaimId::new(n.to_string())
}

fn bit(id: &ClaimId) -> u32 {
    1 << id.as_str().parse::<u32>().expect("claim ids are numbers here")
}

impl Interned for Record {
    fn known() -> &'static Known<Self> {
        static KNOWN: Known<Record> = LazyLock::new(Default::default);
        &KNOWN
    }

    fn claims(&self) -> u32 {
        bit(&self.claim_id)
    }
}

impl Interned for Held {
    fn known() -> &'static Known<Self> {
        static KNOWN: Known<Held> = LazyLock::new(Default::default);
        &KNOWN
    }

    fn claims(&self) -> u32 {
        bit(&self.claim_id)
    }
}

impl Interned for ConditionalWrite {
    fn known() -> &'static Known<Self> {
        static KNOWN: Known<ConditionalWrite> = LazyLock::new(Default::default);
        &KNOWN
    }

    fn claims(&self) -> u32 {
        let expected = match &self.expect {
            Expect::Absent => 0,
            Expect::At { claim_id, .. } => bit(claim_id),
        };
        let set = match &self.change {
            Change::Create(record) => bit(&record.claim_id),
            Change::Update(fields) => fields.iter().fold(0, |set, field| match field {
                Field::ClaimId(id) => set | bit(id),
                _ => set,
            }),
        };
        expected | set
    }
}

/// What a pure function answered before. The protocol reads no clock and draws nothing (see
/// `tests/layering.rs`), so each different call is made once.
pub struct Memo<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Hash + Eq, V: Copy> Memo<K, V> {
    pub fn get(&self, key: K, call: impl FnOnce() -> V) -> V {
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return *known;
        }
        let answer = call();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, answer);
        answer
    }
}
