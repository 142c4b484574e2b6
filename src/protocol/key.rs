//! Names that stay the same for ever: of an operation, of its record, of its effects.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ClaimId;

/// Names one business operation (`invoice:42:finalize`). Made by the producer when the command is
/// accepted, never by the worker: a key made at run time would be new at every retry.
///
/// `Debug` does not show it, so it cannot reach a log by accident.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// Why a text cannot be an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// Jobs with no key would all collide with one another.
    #[error("the idempotency key is empty")]
    Empty,
    /// The record keeps the key as given, and a record has a size limit.
    #[error("the idempotency key has {0} bytes; at most 16384 are accepted")]
    TooLong(usize),
}

impl IdempotencyKey {
    const MAX: usize = 16 * 1024;

    /// Takes a key as the producer gave it: 1 to 16,384 bytes of any text, compared byte by byte.
    pub fn new(key: impl Into<String>) -> Result<Self, InvalidKey> {
        let key = key.into();
        match key.len() {
            0 => Err(InvalidKey::Empty),
            n if n > Self::MAX => Err(InvalidKey::TooLong(n)),
            _ => Ok(Self(key)),
        }
    }

    /// The key in plain text. Keep it out of logs at `info`: use [`RecordId`] there.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} bytes)", self.0.len())
    }
}

/// SHA-256 over parts that are each preceded by their length, so that `a#b` + `c` never meets
/// `a` + `b#c`.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        // No part can reach 4 GiB: messages end at 1 MiB.
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    // By the formatter it took a twentieth of a message's time, and by an iterator of characters, each
    // of which may be of four bytes, a fiftieth.
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }));
        }
    }
    out
}

/// Tells the attempts at a record apart, in 24 characters of lower-case base32.
pub(super) fn attempt_digest(id: &RecordId, attempt: &ClaimId) -> String {
    let parts = ["onlyonce/1/event", id.as_str(), attempt.as_str()];
    base32(digest(parts.map(str::as_bytes)).iter().take(15))
}

/// Stands for a unique id, in lower-case hex.
pub(super) fn unique_digest(namespace: &str, job: &str, unique_id: &str) -> String {
    let parts = ["onlyonce/1/unique", namespace, job, unique_id];
    hex(&digest(parts.map(str::as_bytes)))
}

/// The identity of one record, and the digest that stands for its key in logs: lower-case hex
/// SHA-256 over namespace, job and key. Shared by whoever asks for the record: a message has a dozen
/// of them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(Arc<str>);

impl RecordId {
    /// The id of `key` for `job` in `namespace`.
    pub fn new(namespace: &str, job: &str, key: &IdempotencyKey) -> Self {
        let parts = ["onlyonce/1", namespace, job, key.as_str()];
        Self(hex(&digest(parts.map(str::as_bytes))).into())
    }

    /// An id as it was read from a store or typed by an operator: 64 lower-case hex digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let valid = text.len() == 64
            && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        valid.then(|| Self(text.into()))
    }

    /// 64 lower-case hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key an effect shows to its provider: 32 characters of lower-case base32 that every
/// provider accepts, the same over attempts, deploys and redrives.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    /// The key of effect `name` under `id`. `generation` grows only after a recorded definite
    /// rejection, because providers replay a rejection under its key.
    pub fn new(id: &RecordId, name: &str, generation: u64) -> Self {
        let generation = generation.to_string();
        let parts = ["onlyonce/1/effect", id.as_str(), name, &generation];
        let digest = digest(parts.map(str::as_bytes));
        Self(base32(digest.iter().take(20)))
    }

    /// 32 characters out of `a-z2-7`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// RFC 4648 base32 in lower case. The input's bits must be a multiple of five, so that no padding
/// arises: 20 bytes give 32 characters.
fn base32<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    let digit = |five_bits: u32| match u8::try_from(five_bits & 31).unwrap_or(0) {
        n @ 0..=25 => char::from(b'a' + n),
        n => char::from(b'2' + n - 26),
    };
    let (mut out, mut bits, mut held) = (String::new(), 0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            out.push(digit(bits >> held));
        }
        bits &= (1 << held) - 1;
    }
    out
}

/// SHA-256 of a payload's canonical form, in lower-case hex.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(Arc<str>);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)).into())
    }

    /// A fingerprint as it was read from a store.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// 64 lower-case hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(namespace: &str, job: &str, key: &str) -> RecordId {
        RecordId::new(namespace, job, &IdempotencyKey::new(key).unwrap())
    }

    #[test]
    fn record_ids_match_the_published_vectors() {
        let cases = [
            (
                ("default", "invoice.finalize", "invoice:42:finalize"),
                "e60ac61659f443cb12f81d5b41e1775d136e698dd54b67cfe348d03fc4f6db18",
            ),
            (
                ("default", "a", "b#c"),
                "f3b1ca59a89d7b3166ff7a0b131b4f856a00d4a6811f8506959566d840297d34",
            ),
            (
                ("default", "a#b", "c"),
                "5af09d2e2d30a73b71b5b79147632967537ac017130698d9d20a8997c2352cdb",
            ),
            (
                ("eu", "user.welcome", "user:é:welcome"),
                "f05d3e84b3bba939b164ebb97b046d2f08a4c51d1a464536be42eb2f6cd7effa",
            ),
        ];
        for ((namespace, job, key), pk) in cases {
            assert_eq!(id(namespace, job, key).as_str(), pk);
        }
    }

    #[test]
    fn effect_keys_match_the_published_vectors() {
        let id = id("default", "invoice.finalize", "invoice:42:finalize");
        let key = |name, generation| EffectKey::new(&id, name, generation).to_string();
        assert_eq!(key("charge", 0), "6oxknd2dktcbxbqmswyakjvwokcuas3e");
        assert_eq!(key("charge", 1), "psefhxjymwkcsfpdz46b2245xnrl6k3m");
        assert_eq!(key("receipt", 0), "cg3cq2lqaylufekpl5rc24ge3amjzt62");
    }

    #[test]
    fn an_empty_key_is_no_key_and_a_long_one_is() {
        assert_eq!(IdempotencyKey::new(""), Err(InvalidKey::Empty));
        assert!(IdempotencyKey::new("k".repeat(3_000)).is_ok());
        assert!(IdempotencyKey::new("k".repeat(16 * 1024 + 1)).is_err());
    }

    #[test]
    fn a_key_does_not_show_itself_in_debug_output() {
        let key = IdempotencyKey::new("user:42:secret").unwrap();
        assert_eq!(format!("{key:?}"), "IdempotencyKey(14 bytes)");
    }

    #[test]
    fn ids_are_read_back_only_in_their_own_form() {
        let id = id("default", "a", "b");
        let text = id.as_str();
        assert_eq!(RecordId::from_hex(text), Some(id.clone()));
        for other in ["XYZ", &text[1..], &format!("{text}0"), &text.to_uppercase(), &"g".repeat(64)]
        {
            assert_eq!(RecordId::from_hex(other), None, "{other}");
        }
    }

    #[test]
    fn digests_show_themselves() {
        let id = id("default", "a", "b");
        let (key, print) = (EffectKey::new(&id, "charge", 0), Fingerprint::of(b"{}"));
        assert_eq!((id.to_string(), format!("{id:?}")), (id.as_str().into(), id.as_str().into()));
        assert_eq!(
            (key.to_string(), format!("{key:?}")),
            (key.as_str().into(), key.as_str().into())
        );
        assert_eq!(key.as_str().len(), 32);
        let sha256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(print.as_str(), sha256);
        let shown = (print.to_string(), format!("{print:?}"));
        assert_eq!(shown, (print.as_str().into(), print.as_str().into()));
    }
}
