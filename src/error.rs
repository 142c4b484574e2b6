//! What goes wrong: [`Error`] for our own parts, [`HandlerError`] for a handler's.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::protocol::{Failure, RecordId, Said};

/// Any error, boxed.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The longest error text kept: in a record, in a quarantine mark.
const MAX_ERROR_TEXT: usize = 1024;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A setting is missing or wrong; nothing was started.
    Config,
    /// The store did not answer, or not in time: what was sent may or may not have landed.
    StoreUnavailable,
    /// Another transaction was in the way, each time it was tried; what was sent has not landed.
    StoreContended,
    /// The store refused for good: no such table, no permission, a bad request.
    StoreRefused,
    /// A stored record cannot be read, or is of a later version of this program.
    Record,
    /// A staged write that this store cannot commit.
    Staged,
    /// The queue service did not do as asked.
    Queue,
    /// The event is not one this worker can answer.
    Event,
    /// A secret could not be read.
    Secret,
}

impl ErrorKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "configuration",
            Self::StoreUnavailable => "store unavailable",
            Self::StoreContended => "store contended",
            Self::StoreRefused => "store refused",
            Self::Record => "unreadable record",
            Self::Staged => "staged write refused",
            Self::Queue => "queue",
            Self::Event => "event",
            Self::Secret => "secret",
        }
    }
}

/// An error of one of our own parts: kind, operation, the record's digest if there is one, and
/// what lies beneath.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    id: Option<RecordId>,
    detail: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of `kind` while doing `operation`.
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self { kind, operation, id: None, detail: None, source: None }
    }

    /// Names the record.
    #[must_use]
    pub fn with_id(mut self, id: &RecordId) -> Self {
        self.id = Some(id.clone());
        self
    }

    /// Says more, and what to do about it.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Names what lies beneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::StoreUnavailable
                | ErrorKind::StoreContended
                | ErrorKind::Queue
                | ErrorKind::Secret
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.operation)?;
        if let Some(id) = &self.id {
            write!(f, " {id}")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        if let Some(source) = &self.source {
            write!(f, ": {}", Chain(source.as_ref()))?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| -> &(dyn StdError + 'static) { source.as_ref() })
    }
}

/// Why a handler did not do its job, and whether trying again can help.
///
/// Any error turns into a retryable one by `?`; say [`HandlerError::terminal`] where trying again
/// is useless. This type is no `std::error::Error` itself, so that `?` can take every error that is.
#[derive(Debug)]
pub struct HandlerError {
    failure: Failure,
    message: String,
    said: Said,
}

impl HandlerError {
    fn new(failure: Failure, message: impl fmt::Display) -> Self {
        Self { failure, message: message.to_string(), said: Said::Nothing }
    }

    /// Worth trying again by the job's policy.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::new(Failure::Retryable, message)
    }

    /// Worth trying again after `wait`, at most 12 h: what a provider's `Retry-After` said.
    pub fn retry_after(wait: Duration, message: impl fmt::Display) -> Self {
        Self::new(Failure::RetryAfter(wait), message)
    }

    /// Trying again cannot help. The message goes to quarantine.
    pub fn terminal(message: impl fmt::Display) -> Self {
        Self::new(Failure::Terminal, message)
    }

    /// The provider refused for certain, as with a declined card: under this key nothing was done,
    /// and trying again as it is cannot help. A later redrive runs the effect anew, under a new key.
    pub fn rejected(message: impl fmt::Display) -> Self {
        Self { said: Said::Rejected, ..Self::terminal(message) }
    }

    /// The provider knows the key with another request. Where the effect may have been sent before,
    /// that ends as unknown; else as [rejected](Self::rejected).
    pub fn mismatch(message: impl fmt::Display) -> Self {
        Self { said: Said::Mismatch, ..Self::terminal(message) }
    }

    /// Adds that this request did nothing, for certain, as with a refused connection or a throttle:
    /// an effect that must not run twice may then run again. Of an earlier request under the same
    /// key it says nothing.
    #[must_use]
    pub fn not_sent(self) -> Self {
        Self { said: Said::NotSent, ..self }
    }

    pub(crate) fn said(&self) -> Said {
        self.said
    }

    /// Whether trying again cannot help.
    pub(crate) fn is_final(&self) -> bool {
        self.failure == Failure::Terminal
    }

    /// It cannot be known whether the effect happened. The record is parked for a person, and the
    /// message goes to quarantine; neither is run again by itself.
    pub fn unknown(message: impl fmt::Display) -> Self {
        Self::new(Failure::Unknown, message)
    }

    pub(crate) fn cancelled(message: impl fmt::Display) -> Self {
        Self::new(Failure::Cancelled, message)
    }

    /// Takes a boxed error: one of ours keeps its kind, any other is retryable.
    pub fn from_boxed(error: BoxError) -> Self {
        match error.downcast::<Carried>() {
            Ok(carried) => carried.0,
            // Ours says what lies beneath it by itself.
            Err(error) if error.is::<Error>() => Self::retryable(error),
            Err(error) => Self::retryable(Chain(error.as_ref())),
        }
    }

    /// As a boxed error, for a tower layer to carry outwards.
    pub(crate) fn into_boxed(self) -> BoxError {
        Box::new(Carried(self))
    }

    /// How it went wrong.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// What it says; capped at 1 KB where it is kept.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::from_boxed(Box::new(error))
    }
}

/// Carries a handler's error through tower layers, which only know boxed errors.
#[derive(Debug)]
struct Carried(HandlerError);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Carried {}

/// An error and everything beneath it.
struct Chain<'a>(&'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// An error text fit to be kept: without the key's plain text, on one line, capped at
/// [`MAX_ERROR_TEXT`] bytes.
pub(crate) fn kept_text(text: &str, key: &str) -> String {
    let text = if key.is_empty() { text.to_owned() } else { text.replace(key, "[key]") };
    let one_line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = MAX_ERROR_TEXT.min(one_line.len());
    while !one_line.is_char_boundary(end) {
        end -= 1;
    }
    one_line.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_makes_any_error_retryable() {
        fn fails() -> Result<(), HandlerError> {
            "x".parse::<u32>()?;
            Ok(())
        }
        assert_eq!(fails().unwrap_err().failure(), &Failure::Retryable);
    }

    #[test]
    fn an_error_says_what_lies_beneath_it_once() {
        let beneath = "x".parse::<u32>().unwrap_err();
        let ours = Error::new(ErrorKind::Queue, "send").with_source(beneath);
        let message = HandlerError::from(ours).message().to_owned();
        assert_eq!(message, "queue: send: invalid digit found in string");
    }

    #[test]
    fn our_own_kind_survives_a_trip_through_a_box() {
        let boxed = HandlerError::terminal("no").into_boxed();
        assert_eq!(HandlerError::from_boxed(boxed).failure(), &Failure::Terminal);
    }

    #[test]
    fn kept_text_is_capped_at_a_character_and_names_no_key() {
        let kept = kept_text(&format!("user:42\nsays {}", "é".repeat(2000)), "user:42");
        assert!(kept.len() <= MAX_ERROR_TEXT);
        assert!(kept.starts_with("[key] says é"));
    }
}
