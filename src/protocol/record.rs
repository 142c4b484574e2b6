//! The stored state of one operation.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{EffectKey, EpochSeconds, Fingerprint, RecordId, Timestamp};

/// The version of the record's layout. A record of a higher one is not touched.
pub const SCHEMA_VERSION: u32 = 1;

/// One attempt's ownership of a record: random, minted for that attempt and never at process
/// start, since one process may serve several invocations.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClaimId(Arc<str>);

impl ClaimId {
    /// An id from a source of randomness, or as it was read from a store.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Grows by one at every claim of a record. A resource that remembers the highest token it has
/// seen can refuse a late owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl FencingToken {
    /// The token of the next claim.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Grows by one at every write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev(pub u64);

impl Rev {
    /// The revision after one more write.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Declares an enum whose variants have one stored name each.
macro_rules! stored_names {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)+ }

        impl $name {
            /// The name as it is stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok(Self::$variant),)+ _ => Err(()) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

stored_names! {
    /// What a record may be in.
    Status {
        /// An attempt owns it until its lease and the skew are over.
        Claimed = "claimed",
        /// A retryable failure; due again at `not_before`.
        Released = "released",
        /// Done. Never changes again.
        Completed = "completed",
        /// Given up: terminal, or the budget is spent.
        Failed = "failed",
        /// An effect's outcome cannot be known. Only an operator leaves it.
        Unknown = "unknown",
    }
}

impl Status {
    /// Whether the record waits for a retry or a person, and so stands in the `parked` index.
    pub const fn is_parked(self) -> bool {
        match self {
            Self::Released | Self::Failed | Self::Unknown => true,
            Self::Claimed | Self::Completed => false,
        }
    }
}

stored_names! {
    /// How far the message of a failed record is on its way to the dead-letter queue.
    Quarantine {
        /// Not known to have arrived there.
        Pending = "pending",
        /// Arrived.
        Sent = "sent",
    }
}

stored_names! {
    /// How far an effect came.
    EffectState {
        /// It may have been started; its outcome is not recorded, and it does not run again by
        /// itself.
        Intent = "intent",
        /// It was sent under its key and may have happened; it is sent again under that key.
        Sent = "sent",
        /// It did not reach its provider, for certain.
        Unsent = "unsent",
        /// It happened; its result is kept.
        Done = "done",
        /// The provider refused for certain: nothing happened.
        Rejected = "rejected",
    }
}

impl EffectState {
    /// Whether it may have happened.
    pub const fn may_have_happened(self) -> bool {
        match self {
            Self::Intent | Self::Sent | Self::Done => true,
            Self::Unsent | Self::Rejected => false,
        }
    }
}

/// One named effect of a job, as remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectRecord {
    /// How far it came.
    pub state: EffectState,
    /// Counts the recorded definite rejections before this run; part of the effect's key.
    pub generation: u64,
    /// When its current generation was first sent, or may have been.
    pub first_sent: Timestamp,
    /// Digest of what was sent under its key, where that is known and it is not done.
    pub request: Option<Fingerprint>,
    /// Its result as JSON text, once done.
    pub result: Option<String>,
}

/// What a completed job answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// JSON text; a replay answers the same.
    Stored(String),
    /// Not serialisable, or over the cap. The job is completed all the same.
    Omitted,
}

/// The stored state of one (namespace, job, key).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Digest of namespace, job and key.
    pub id: RecordId,
    /// The key as given, for people.
    pub key: String,
    /// The job's name.
    pub job: String,
    /// Separates deployments in one table.
    pub namespace: String,
    /// Where it stands.
    pub status: Status,
    /// The claim that wrote it last.
    pub claim_id: ClaimId,
    /// Grows at every claim.
    pub token: FencingToken,
    /// Grows at every write.
    pub rev: Rev,
    /// Attempts begun since the record was made or re-opened, this one included.
    pub attempt: u32,
    /// Until when the claim is believed.
    pub lease_until: Timestamp,
    /// Not to be tried before this, while released.
    pub not_before: Option<Timestamp>,
    /// Of the first payload seen; `None` where the job turned it off.
    pub fingerprint: Option<Fingerprint>,
    /// Since when an attempt that died without a word may have begun effects that are not
    /// recorded.
    pub unrecorded_since: Option<Timestamp>,
    /// The job's effects by name.
    pub effects: BTreeMap<String, EffectRecord>,
    /// The answer, once completed.
    pub output: Option<Output>,
    /// Why it failed last; capped, without the key.
    pub error: Option<String>,
    /// On the way to the dead-letter queue.
    pub quarantine: Option<Quarantine>,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// The queue's id of the message claimed last. For people, never for identity.
    pub message_id: Option<String>,
    /// TTL; `None` never expires.
    pub expires_at: Option<EpochSeconds>,
}

impl Record {
    /// The key that effect `name` has shown to its provider last, or would show first.
    pub fn effect_key(&self, name: &str) -> EffectKey {
        let generation = self.effects.get(name).map_or(0, |effect| effect.generation);
        EffectKey::new(&self.id, name, generation)
    }

    /// Whether some effect may have been started with its outcome not recorded.
    pub fn has_open_intent(&self) -> bool {
        has_open_intent(&self.effects)
    }

    /// Whether a payload with this fingerprint is another than its key is bound to; never where
    /// one of the two is not compared.
    pub fn is_of_other(&self, given: Option<&Fingerprint>) -> bool {
        matches!((&self.fingerprint, given), (Some(stored), Some(given)) if stored != given)
    }

    /// The first effect that may have been started with its outcome not recorded.
    pub fn open_intent(&self) -> Option<&str> {
        let mut effects = self.effects.iter();
        effects.find(|(_, it)| it.state == EffectState::Intent).map(|(name, _)| name.as_str())
    }
}

/// Whether some effect may have been started with its outcome not recorded.
pub(super) fn has_open_intent(effects: &BTreeMap<String, EffectRecord>) -> bool {
    effects.values().any(|effect| effect.state == EffectState::Intent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_are_stored() {
        let statuses = [
            (Status::Claimed, "claimed", false),
            (Status::Released, "released", true),
            (Status::Completed, "completed", false),
            (Status::Failed, "failed", true),
            (Status::Unknown, "unknown", true),
        ];
        for (status, name, is_parked) in statuses {
            assert_eq!((status.as_str(), name.parse()), (name, Ok(status)));
            assert_eq!(
                (format!("{status:>10}"), status.is_parked()),
                (format!("{name:>10}"), is_parked)
            );
        }
        let states = [
            (EffectState::Intent, "intent", true),
            (EffectState::Sent, "sent", true),
            (EffectState::Unsent, "unsent", false),
            (EffectState::Done, "done", true),
            (EffectState::Rejected, "rejected", false),
        ];
        for (state, name, may_have_happened) in states {
            assert_eq!((state.as_str(), name.parse()), (name, Ok(state)));
            assert_eq!(state.may_have_happened(), may_have_happened, "{state}");
        }
        for (quarantine, name) in [(Quarantine::Pending, "pending"), (Quarantine::Sent, "sent")] {
            assert_eq!((quarantine.as_str(), name.parse()), (name, Ok(quarantine)));
        }
        assert_eq!("Claimed".parse::<Status>(), Err(()));
    }

    #[test]
    fn a_claims_id_is_kept_and_shown_as_it_is() {
        let id = ClaimId::new("7f3a");
        assert_eq!((id.as_str(), format!("{id:?}")), ("7f3a", "7f3a".to_owned()));
    }

    #[test]
    fn a_counter_ends_and_does_not_begin_anew() {
        assert_eq!(FencingToken(1).next(), FencingToken(2));
        assert_eq!(Rev(u64::MAX).next(), Rev(u64::MAX));
    }
}
