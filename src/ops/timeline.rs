//! What is known of a record, in the order in which it happened.

use std::time::{Duration, UNIX_EPOCH};

use super::RecordView;
use crate::protocol::Timestamp;

/// Something that happened to a record, or will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: String,
}

/// An instant as people read it.
pub fn instant(at: Timestamp) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_millis(at.millis()));
    // The formatter knows four digits of a year.
    let time = time.filter(|time| *time < UNIX_EPOCH + Duration::from_secs(253_402_300_800));
    time.map_or_else(
        || format!("{} ms", at.millis()),
        |time| humantime::format_rfc3339_millis(time).to_string(),
    )
}

impl RecordView {
    /// What its record remembers, oldest first. A record keeps the last of each: earlier attempts
    /// are a number.
    pub fn timeline(&self) -> Vec<Moment> {
        let at = Timestamp::from_millis;
        let mut moments = vec![(self.created_at, "first recorded".to_owned())];
        if let Some(since) = self.unrecorded_since {
            let what = "last write before an attempt died; what it began is not recorded";
            moments.push((since, what.to_owned()));
        }
        for (name, effect) in &self.effects {
            let said = match effect.state {
                "intent" => "may have happened; its outcome is not recorded",
                "sent" => "may have happened; it is sent again under its key",
                "unsent" => "did not reach its provider",
                "rejected" => "refused for certain; its next key is a new one",
                _ => "done",
            };
            let nth = match effect.generation {
                0 => String::new(),
                n => format!(", key {n}"),
            };
            moments.push((effect.first_sent, format!("effect {name}{nth}: {said}")));
        }
        moments.push((self.updated_at, self.now_is()));
        if self.status == "claimed" {
            moments.push((self.lease_until, "its lease ends".to_owned()));
        }
        if let Some(due) = self.not_before.filter(|_| self.status == "released") {
            moments.push((due, "due again".to_owned()));
        }
        if let Some(expiry) = self.expiry().filter(|_| !self.is_tombstone()) {
            moments.push((expiry, "forgotten from here on".to_owned()));
        }
        moments.sort_by_key(|(at, _)| *at);
        moments.into_iter().map(|(ms, what)| Moment { at: at(ms), what }).collect()
    }

    fn expiry(&self) -> Option<u64> {
        self.expires_at.map(|seconds| seconds.saturating_mul(1000))
    }

    /// Whether it was written as expired, which `forget` alone does.
    fn is_tombstone(&self) -> bool {
        self.expiry().is_some_and(|expiry| expiry < self.updated_at)
    }

    fn now_is(&self) -> String {
        if self.is_tombstone() {
            let token = self.token;
            return format!(
                "forgotten, token {token}; its next message runs as if it were the first"
            );
        }
        let mut what = format!("{}, attempt {}, token {}", self.status, self.attempt, self.token);
        match self.quarantine {
            Some("pending") => what += ", its message on the way to the dead-letter queue",
            Some(_) => what += ", its message in the dead-letter queue",
            None => {}
        }
        if let Some(error) = &self.error {
            what += ": ";
            what += error;
        }
        what
    }
}
