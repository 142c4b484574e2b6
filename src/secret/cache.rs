//! Values that were read, for a while: one read at a time, and not too often.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::aws::Aws;
use super::{KeptIn, Reading, Refused, sensitive};
use crate::error::{Error, HandlerError};
use crate::protocol::Timestamp;
use crate::runtime::{Clock, before};

/// How long a value is used without looking again.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// How many values are kept.
const MAX_KEPT: usize = 100;
/// How often a value that providers refuse is looked up again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Where secrets are read from.
#[async_trait]
pub(super) trait Vault: Send + Sync {
    /// The value; `None` if what is there is no text.
    async fn fetch(&self, place: &KeptIn) -> Result<Option<String>, Error>;
}

/// The values of this process.
pub(super) fn shared() -> &'static Secrets {
    static SHARED: LazyLock<Secrets> = LazyLock::new(|| Secrets::new(Box::<Aws>::default()));
    &SHARED
}

pub(super) struct Secrets {
    vault: Box<dyn Vault>,
    kept: Mutex<HashMap<KeptIn, Kept>>,
    /// Whoever holds it reads. The others wait, and find what was read.
    turn: tokio::sync::Mutex<()>,
}

struct Kept {
    reading: Reading,
    /// When it was last looked up, with or without success.
    asked: Timestamp,
}

impl Secrets {
    pub fn new(vault: Box<dyn Vault>) -> Self {
        Self { vault, kept: Mutex::default(), turn: tokio::sync::Mutex::new(()) }
    }

    /// The value, read at most five minutes ago.
    pub async fn get(
        &self,
        place: &KeptIn,
        clock: &dyn Clock,
        until: Timestamp,
    ) -> Result<Reading, HandlerError> {
        let fresh = || self.kept(place, |kept| is_within(kept.at, KEPT_FOR, clock.now()));
        // Without waiting for somebody who reads another.
        if let Some(found) = fresh() {
            return Ok(found);
        }
        let read = async {
            match fresh() {
                Some(found) => Ok(found),
                None => self.fetch(place, clock).await,
            }
        };
        self.in_turn(place, clock, until, read).await
    }

    /// Looks for another value than `used`, at most once a minute.
    pub async fn refused(
        &self,
        place: &KeptIn,
        used: &Reading,
        clock: &dyn Clock,
        until: Timestamp,
    ) -> Result<Refused, HandlerError> {
        let look = async {
            let now = match self.kept(place, |kept| kept.at != used.at) {
                // Somebody has looked since.
                Some(found) => found,
                None => {
                    let asked = self.with(|kept| kept.get(place).map(|kept| kept.asked));
                    let now = clock.now();
                    if let Some(asked) = asked.filter(|asked| is_within(*asked, LOOK_AGAIN, now)) {
                        return Ok(Refused::TooSoon((asked + LOOK_AGAIN).remaining(now)));
                    }
                    self.fetch(place, clock).await?
                }
            };
            let is_same = now.value == used.value;
            Ok(if is_same { Refused::Unchanged } else { Refused::Changed(now) })
        };
        self.in_turn(place, clock, until, look).await
    }

    /// Reads when nobody else does, by `until` at the latest.
    async fn in_turn<T>(
        &self,
        place: &KeptIn,
        clock: &dyn Clock,
        until: Timestamp,
        read: impl Future<Output = Result<T, String>>,
    ) -> Result<T, HandlerError> {
        let read = async {
            let _turn = self.turn.lock().await;
            read.await
        };
        match before(clock, until, read).await {
            Some(read) => read.map_err(|why| cannot_read(place, &why)),
            None => Err(cannot_read(place, "it did not answer in time")),
        }
    }

    fn kept(&self, place: &KeptIn, is_wanted: impl Fn(&Reading) -> bool) -> Option<Reading> {
        self.with(|kept| kept.get(place).map(|kept| kept.reading.clone()).filter(is_wanted))
    }

    async fn fetch(&self, place: &KeptIn, clock: &dyn Clock) -> Result<Reading, String> {
        let at = clock.now();
        self.with(|kept| {
            if let Some(kept) = kept.get_mut(place) {
                kept.asked = at;
            }
        });
        let found = self.vault.fetch(place).await.map_err(|error| error.to_string())?;
        let value = found.as_deref().and_then(sensitive).ok_or(
            "its value is no text, is empty, or has characters that no header can carry, such as a \
             line's end",
        )?;
        let reading = Reading { value, at };
        self.with(|kept| {
            if kept.len() >= MAX_KEPT && !kept.contains_key(place) {
                let oldest = kept.iter().min_by_key(|(_, kept)| kept.reading.at);
                if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                    kept.remove(&oldest);
                }
            }
            kept.insert(place.clone(), Kept { reading: reading.clone(), asked: at });
        });
        Ok(reading)
    }

    fn with<T>(&self, look: impl FnOnce(&mut HashMap<KeptIn, Kept>) -> T) -> T {
        look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether `at` is less than `time` ago. What is yet to come was read before the clock was set
/// back, nobody knows how long ago.
fn is_within(at: Timestamp, time: Duration, now: Timestamp) -> bool {
    at <= now && now.since(at) < time
}

/// Retryable: whoever keeps the secret may be back, and a wrong one be put right, by then.
fn cannot_read(place: &KeptIn, why: &str) -> HandlerError {
    HandlerError::retryable(format!(
        "{place} cannot be read: {why}; correct it, or allow the worker to read it"
    ))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
