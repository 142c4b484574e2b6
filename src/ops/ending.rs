//! How a command ends: 0 = fine, 1 = findings or failure, 2 = wrong usage.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::process::ExitCode;

use crate::error::BoxError;

const WRONG_USAGE: u8 = 2;

/// Something is missing from what was asked for, or contradicts it.
#[derive(Clone, Debug)]
pub struct Usage(pub Cow<'static, str>);

impl Usage {
    /// Of a text that is always the same.
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Usage {}

/// No queue is named.
pub const NO_QUEUE: Usage = Usage::new("no queue: give --queue-url or set ONLYONCE_QUEUE_URL");
/// No dead-letter queue is named.
pub(super) const NO_DLQ: Usage =
    Usage::new("no dead-letter queue: give --dlq-url or set ONLYONCE_DLQ_URL");
/// No record is named.
pub(super) const NO_RECORD: Usage =
    Usage::new("give a job and a key, or a key digest of 64 hex digits");

/// Says what went wrong, if something did.
pub fn end(ended: Result<ExitCode, BoxError>, is_json: bool) -> ExitCode {
    ended.unwrap_or_else(|error| {
        match is_json {
            true => eprintln!("{}", serde_json::json!({ "error": error.to_string() })),
            false => eprintln!("onlyonce: {error}"),
        }
        match error.is::<Usage>() {
            true => ExitCode::from(WRONG_USAGE),
            false => ExitCode::FAILURE,
        }
    })
}
