//! An event on its way out: written with the change it tells of, sent on afterwards.

use std::collections::BTreeMap;

use super::key::{attempt_digest, unique_digest};
use super::xml::is_xml;
use super::{ClaimId, IdempotencyKey, RecordId, Timestamp, TraceParent};

/// One event in an outbox.
///
/// It is written in the transaction that makes it true, so it is there exactly if that has
/// happened; and it stays there until it has been sent on, so it is sent at least once, each time
/// under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Events of one order key are sent on one after another, in the order of their ids.
    pub order_key: String,
    /// Names the event for ever: the idempotency key of whoever receives it.
    pub event_id: IdempotencyKey,
    /// What has happened (`order.placed`); the job of this name sends it on.
    pub event: String,
    /// The payload.
    pub body: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Set on a message that is to be in the queue once at a time.
    pub unique: Option<Unique>,
    /// The trace it belongs to, which goes on with it.
    pub trace: Option<TraceParent>,
}

/// What makes an entry a unique message: it is sent to the worker's own queue, and its row stays
/// until the job has ended, so that there is no second one meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unique {
    /// The key of the job.
    pub key: IdempotencyKey,
    /// Tells this message from a later one of the same unique id.
    pub nonce: String,
    /// From when on another may take its place, whatever became of it.
    pub until: Timestamp,
}

/// Why an entry cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// DynamoDB takes no more.
    #[error("the order key has {0} bytes; 1 to 1024 are accepted")]
    OrderKey(usize),
    /// The same.
    #[error("the event id has {0} bytes; at most 1024 are accepted")]
    EventId(usize),
    /// It goes through a queue, and with its row into one item.
    #[error(
        "the event's body has {0} bytes; at most 262144 are accepted: send a reference instead"
    )]
    Body(usize),
    /// The relay finds the job by it.
    #[error("the event has no name")]
    NoName,
    /// Without an end its message would be refused again and again, by the quarantine as well.
    #[error(
        "the event's name, body or message key has characters that SQS does not take (control \
         characters, U+FFFE, U+FFFF); escape them, or leave them out"
    )]
    Characters,
}

impl OutboxEntry {
    /// The longest order key and the longest event id, in bytes.
    pub const LONGEST_KEY: usize = 1024;
    /// The largest body, in bytes: its row, and everything that commits with it, has limits.
    pub const LARGEST_BODY: usize = 256 * 1024;

    /// What goes into a message.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let key = self.unique.as_ref().map_or(&self.event_id, |unique| &unique.key);
        [&*self.event, &*self.body, key.as_str()].into_iter()
    }

    /// Refuses what some store or queue would not take.
    pub fn check(&self) -> Result<(), InvalidEntry> {
        match (self.order_key.len(), self.event_id.as_str().len(), self.body.len()) {
            _ if self.event.is_empty() => Err(InvalidEntry::NoName),
            (n, ..) if n == 0 || n > Self::LONGEST_KEY => Err(InvalidEntry::OrderKey(n)),
            (_, n, _) if n > Self::LONGEST_KEY => Err(InvalidEntry::EventId(n)),
            (.., n) if n > Self::LARGEST_BODY => Err(InvalidEntry::Body(n)),
            _ if !self.texts().all(is_xml) => Err(InvalidEntry::Characters),
            _ => Ok(()),
        }
    }
}

/// The id of an event that a job makes: it sorts by when it was made, `nth` among those of one
/// instant, and no other attempt has it.
pub fn event_id(made_at: Timestamp, nth: usize, id: &RecordId, attempt: &ClaimId) -> String {
    format!("{:013}-{nth:03}-{}", made_at.millis(), attempt_digest(id, attempt))
}

/// What tells the attempt that made an event by [`event_id`] from others; `None` for any other id.
fn made_by(id: &str) -> Option<&str> {
    let mut parts = id.splitn(3, '-');
    let (millis, nth, attempt) = (parts.next()?, parts.next()?, parts.next()?);
    let is_number =
        |text: &str, least| text.len() >= least && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(millis, 13) && is_number(nth, 3) && attempt.len() == 24).then_some(attempt)
}

/// The positions of these entries in the order in which they are to go: as they are, but those of
/// one attempt as it made them. A stream keeps the order of one item's changes alone, and the items
/// of one transaction may come in any.
pub fn as_made(entries: &[OutboxEntry]) -> Vec<usize> {
    let mut of_one: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(attempt) = made_by(entry.event_id.as_str()) {
            of_one.entry((&entry.order_key, attempt)).or_default().push(at);
        }
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    for places in of_one.into_values() {
        let mut made = places.clone();
        made.sort_by_key(|at| entries.get(*at).map(|entry| entry.event_id.as_str()));
        for (place, at) in places.into_iter().zip(made) {
            if let Some(slot) = order.get_mut(place) {
                *slot = at;
            }
        }
    }
    order
}

/// The row of a unique message: the same for each message of one unique id, and so there once.
pub fn unique_row(namespace: &str, job: &str, unique_id: &str) -> String {
    format!("unique-{}", unique_digest(namespace, job, unique_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> OutboxEntry {
        OutboxEntry {
            order_key: "order-42".to_owned(),
            event_id: IdempotencyKey::new("e").unwrap(),
            event: "order.placed".to_owned(),
            body: "{}".to_owned(),
            created_at: Timestamp::from_millis(1),
            unique: None,
            trace: None,
        }
    }

    #[test]
    fn ids_sort_by_when_they_were_made_and_then_by_their_number() {
        let id = RecordId::new("default", "order", &IdempotencyKey::new("order-42").unwrap());
        let made = |ms, nth| event_id(Timestamp::from_millis(ms), nth, &id, &ClaimId::new("one"));
        let ids = [
            made(999, 7),
            made(1_000, 0),
            made(1_000, 1),
            made(1_000, 10),
            made(1_764_000_000_000, 0),
        ];
        assert!(ids.is_sorted(), "{ids:?}");
        let other = event_id(Timestamp::from_millis(1_000), 0, &id, &ClaimId::new("two"));
        assert_ne!(other, made(1_000, 0));
        assert!(ids.iter().all(|id| id.len() == 42), "{ids:?}");
        assert_eq!(made_by(&ids[0]), made_by(&ids[4]));
        assert_ne!(made_by(&ids[0]), made_by(&other));
        assert!(
            ["", "10-placed", "0000000000001-000-a", &ids[0][1..]]
                .iter()
                .all(|id| made_by(id).is_none())
        );
    }

    #[test]
    fn events_of_one_attempt_go_as_it_made_them_and_all_others_as_they_come() {
        let id = RecordId::new("default", "order", &IdempotencyKey::new("order-42").unwrap());
        let made = |order_key: &str, ms, nth, attempt| {
            let event_id = event_id(Timestamp::from_millis(ms), nth, &id, &ClaimId::new(attempt));
            let event_id = IdempotencyKey::new(event_id).unwrap();
            OutboxEntry { order_key: order_key.to_owned(), event_id, ..entry() }
        };
        let named =
            |name: &str| OutboxEntry { event_id: IdempotencyKey::new(name).unwrap(), ..entry() };
        let entries = [
            made("ada", 9, 2, "one"),
            made("ada", 5, 0, "two"),
            made("ada", 9, 0, "one"),
            made("bob", 9, 0, "one"),
            made("ada", 9, 1, "one"),
            named("order-43-placed"),
            named("order-42-placed"),
        ];
        assert_eq!(as_made(&entries), [2, 1, 4, 3, 0, 5, 6]);
    }

    #[test]
    fn what_no_store_or_queue_takes_is_refused() {
        assert_eq!(entry().check(), Ok(()));
        let long = |n: usize| "x".repeat(n);
        let fine = OutboxEntry { order_key: long(1024), body: long(256 * 1024), ..entry() };
        assert_eq!(fine.check(), Ok(()));
        for (entry, why) in [
            (OutboxEntry { order_key: long(1025), ..entry() }, InvalidEntry::OrderKey(1025)),
            (OutboxEntry { order_key: long(0), ..entry() }, InvalidEntry::OrderKey(0)),
            (OutboxEntry { body: long(262_145), ..entry() }, InvalidEntry::Body(262_145)),
            (OutboxEntry { event: long(0), ..entry() }, InvalidEntry::NoName),
            (OutboxEntry { event: "a\u{1}".to_owned(), ..entry() }, InvalidEntry::Characters),
            (OutboxEntry { body: "\"\u{ffff}\"".to_owned(), ..entry() }, InvalidEntry::Characters),
            (
                OutboxEntry { event_id: IdempotencyKey::new("\u{0}").unwrap(), ..entry() },
                InvalidEntry::Characters,
            ),
            (
                OutboxEntry { event_id: IdempotencyKey::new(long(1025)).unwrap(), ..entry() },
                InvalidEntry::EventId(1025),
            ),
        ] {
            assert_eq!(entry.check(), Err(why));
        }
    }

    #[test]
    fn a_unique_id_has_one_row_per_job_and_namespace() {
        let row = unique_row("default", "mail", "user:42");
        assert_eq!(row, unique_row("default", "mail", "user:42"));
        for other in [
            unique_row("eu", "mail", "user:42"),
            unique_row("default", "sms", "user:42"),
            unique_row("default", "mail", "user:43"),
            unique_row("default", "mailuser", ":42"),
        ] {
            assert_ne!(row, other);
        }
    }
}
