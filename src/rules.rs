#![doc = include_str!("docs/messages.md")]

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// The message attribute that names the operation, unless the rules name another.
pub const ATTRIBUTE_KEY: &str = "idempotency-key";

/// The message attribute that names the job, unless the rules name another.
pub const ATTRIBUTE_JOB: &str = "job";

/// What a body is wrapped in by the time it is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwrap {
    /// `{"job": .., "idempotency-key": .., "body": ..}`, for producers who cannot set attributes.
    Envelope,
    /// An SNS notification. A body that is none passes through: raw delivery wraps nothing.
    Sns,
    /// An EventBridge event; its `detail` is the payload.
    EventBridge,
    /// An S3 event notification of one record, which is the payload.
    S3,
}

impl Unwrap {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Envelope, Self::Sns, Self::EventBridge, Self::S3];

    /// Its name in the jobs file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Envelope => "envelope",
            Self::Sns => "sns",
            Self::EventBridge => "eventbridge",
            Self::S3 => "s3",
        }
    }
}

/// Derives a name from an unwrapped body: text or a whole number. Anything else is no name.
pub(crate) type Derive = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

/// How messages say which job they ask for and under which key; one set of rules for all messages
/// of a worker.
///
/// Attributes come first, then what a body says of itself, then what is derived from it, then, for
/// the job alone, the default. A key is never made up.
#[derive(Clone)]
pub struct MessageRules {
    pub(crate) key_attribute: String,
    pub(crate) job_attribute: String,
    pub(crate) unwrap: Vec<Unwrap>,
    pub(crate) key: Option<Derive>,
    /// What the key is derived by, as the jobs file says it.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command looks"))]
    pub(crate) key_text: Option<String>,
    pub(crate) job: Option<Derive>,
    pub(crate) default_job: Option<String>,
}

impl Default for MessageRules {
    fn default() -> Self {
        Self {
            key_attribute: ATTRIBUTE_KEY.to_owned(),
            job_attribute: ATTRIBUTE_JOB.to_owned(),
            unwrap: Vec::new(),
            key: None,
            key_text: None,
            job: None,
            default_job: None,
        }
    }
}

impl MessageRules {
    /// The attributes `idempotency-key` and `job`; the body is the payload.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the attribute that holds the key.
    #[must_use]
    pub fn key_attribute(mut self, name: impl Into<String>) -> Self {
        self.key_attribute = name.into();
        self
    }

    /// Names the attribute that holds the job.
    #[must_use]
    pub fn job_attribute(mut self, name: impl Into<String>) -> Self {
        self.job_attribute = name.into();
        self
    }

    /// Takes this off each body, after what was named before: an S3 notification that comes by
    /// SNS is `.unwrap(Unwrap::Sns).unwrap(Unwrap::S3)`.
    #[must_use]
    pub fn unwrap(mut self, wrapping: Unwrap) -> Self {
        self.unwrap.push(wrapping);
        self
    }

    /// Derives the key from the unwrapped body of a message that names none. `derive` must give
    /// text or a whole number that is the same for each copy of one command and for no other
    /// command; `null` where there is none.
    #[must_use]
    pub fn key_from(mut self, derive: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(derive));
        self
    }

    /// Derives the job's name from the unwrapped body of a message that names none.
    #[must_use]
    pub fn job_from(mut self, derive: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        self.job = Some(Arc::new(derive));
        self
    }

    /// The job of messages that name none.
    #[must_use]
    pub fn default_job(mut self, name: impl Into<String>) -> Self {
        self.default_job = Some(name.into());
        self
    }
}

impl fmt::Debug for MessageRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRules")
            .field("key_attribute", &self.key_attribute)
            .field("job_attribute", &self.job_attribute)
            .field("unwrap", &self.unwrap)
            .field("derives_key", &self.key.is_some())
            .field("derives_job", &self.job.is_some())
            .field("default_job", &self.default_job)
            .finish()
    }
}
