#![doc = include_str!("../docs/secrets.md")]

#[cfg(feature = "secrets")]
mod aws;
#[cfg(feature = "secrets")]
mod cache;

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};

use crate::error::HandlerError;
use crate::protocol::Timestamp;
use crate::runtime::Clock;

/// How long reading one secret may take. A job's time is its request's and this, and more.
#[cfg(feature = "secrets")]
const READING: Duration = Duration::from_secs(5);

/// A header whose value is secret.
#[derive(Clone)]
pub struct Secret {
    header: HeaderName,
    value: SecretValue,
}

/// A secret text: what a header, or a login, can carry.
#[derive(Clone)]
pub(crate) enum SecretValue {
    /// Read already.
    Here(HeaderValue),
    /// Read when it is first needed.
    #[cfg(feature = "secrets")]
    Aws(KeptIn),
}

/// Where AWS keeps a secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeptIn {
    /// In SSM's Parameter Store, by name or ARN.
    Ssm(String),
    /// In Secrets Manager, by name or ARN.
    SecretsManager(String),
}

impl fmt::Display for KeptIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssm(name) => write!(f, "the SSM parameter {name:?}"),
            Self::SecretsManager(name) => write!(f, "the Secrets Manager secret {name:?}"),
        }
    }
}

/// A value as it was read. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    value: HeaderValue,
    at: Timestamp,
}

/// What a provider's refusal of a value leads to.
#[cfg_attr(not(feature = "secrets"), allow(dead_code, reason = "nothing is read again"))]
pub(crate) enum Refused {
    /// The value has changed: try this one.
    Changed(Reading),
    /// It is what it was.
    Unchanged,
    /// It was read so lately that it is not read again before this has passed.
    TooSoon(Duration),
}

impl Secret {
    /// A value that is at hand. `None` if no header can carry it.
    pub fn here(header: HeaderName, value: &str) -> Option<Self> {
        Some(Self { header, value: SecretValue::here(value)? })
    }

    /// A value that is read when it is first needed.
    #[cfg(feature = "secrets")]
    pub fn kept_in(header: HeaderName, place: KeptIn) -> Self {
        Self { header, value: SecretValue::Aws(place) }
    }

    #[cfg(feature = "jobs-file")]
    pub(crate) fn new(header: HeaderName, value: SecretValue) -> Self {
        Self { header, value }
    }

    /// The header's name.
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// The value, by `stop` at the latest.
    pub(crate) async fn read(
        &self,
        clock: &dyn Clock,
        stop: Timestamp,
    ) -> Result<Reading, HandlerError> {
        self.value.read(clock, stop).await
    }

    /// Whether there is another value than the one the provider has just refused.
    pub(crate) async fn refused(
        &self,
        used: &Reading,
        clock: &dyn Clock,
        stop: Timestamp,
    ) -> Result<Refused, HandlerError> {
        self.value.refused(used, clock, stop).await
    }
}

impl SecretValue {
    /// A value that is at hand. `None` if it is empty, or no header can carry it.
    pub fn here(value: &str) -> Option<Self> {
        Some(Self::Here(sensitive(value)?))
    }

    /// The value, by `stop` at the latest.
    #[cfg_attr(not(feature = "secrets"), allow(unused_variables, reason = "nothing is read"))]
    pub async fn read(&self, clock: &dyn Clock, stop: Timestamp) -> Result<Reading, HandlerError> {
        match self {
            Self::Here(value) => Ok(Reading { value: value.clone(), at: clock.now() }),
            #[cfg(feature = "secrets")]
            Self::Aws(place) => {
                let until = stop.min(clock.now() + READING);
                cache::shared().get(place, clock, until).await
            }
        }
    }

    /// Whether there is another value than the one that was just refused.
    #[cfg_attr(not(feature = "secrets"), allow(unused_variables, reason = "nothing is read"))]
    pub async fn refused(
        &self,
        used: &Reading,
        clock: &dyn Clock,
        stop: Timestamp,
    ) -> Result<Refused, HandlerError> {
        match self {
            Self::Here(_) => Ok(Refused::Unchanged),
            #[cfg(feature = "secrets")]
            Self::Aws(place) => {
                let until = stop.min(clock.now() + READING);
                cache::shared().refused(place, used, clock, until).await
            }
        }
    }
}

impl Reading {
    pub(crate) fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    /// The value as text, which it was made from.
    #[cfg(feature = "email")]
    pub(crate) fn text(&self) -> &str {
        self.value.to_str().unwrap_or_default()
    }
}

/// A header's value that is never shown; `None` if it is empty, or no header can carry it.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok().filter(|value| !value.is_empty())?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { header, value } = self;
        f.debug_struct("Secret").field("header", header).field("value", value).finish()
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(_) => f.write_str("in memory"),
            #[cfg(feature = "secrets")]
            Self::Aws(place) => write!(f, "{place}"),
        }
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("at", &self.at).finish_non_exhaustive()
    }
}
