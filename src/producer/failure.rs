//! Why a command was not sent.

use std::fmt;

use super::parcel::Parcel;
use crate::protocol::RecordId;

/// What kept a command from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendErrorKind {
    /// It cannot be sent as it is: too large, without its group, with a random-looking key where
    /// that is not allowed. It was not sent.
    Faulty,
    /// SQS refused it by the sender's fault: no such queue, no permission. It is not in the queue.
    Refused,
    /// SQS did not confirm it in time. **It may be in the queue all the same**: send it again under
    /// the same key.
    Unconfirmed,
    /// An earlier message of its group was not sent, which this one must not overtake. It was not
    /// sent; send both again, in order.
    Behind,
}

/// Why a command was not sent: by job and key digest, without the key or the payload.
#[derive(Clone, Debug)]
pub struct SendError {
    kind: SendErrorKind,
    job: Option<String>,
    id: Option<RecordId>,
    group: Option<String>,
    why: String,
}

impl SendError {
    pub(super) fn new(kind: SendErrorKind, parcel: &Parcel, why: impl Into<String>) -> Self {
        let Parcel { job, id, group, .. } = parcel;
        Self { kind, job: job.clone(), id: id.clone(), group: group.clone(), why: why.into() }
    }

    /// Of something that could not even be read as a message.
    #[cfg(feature = "cli")]
    pub(crate) fn unreadable(why: String) -> Self {
        Self { kind: SendErrorKind::Faulty, job: None, id: None, group: None, why }
    }

    pub(super) fn behind(parcel: &Parcel) -> Self {
        let why = "an earlier message of its group was not sent; send both again, in order";
        Self::new(SendErrorKind::Behind, parcel, why)
    }

    pub(super) fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// Whether the same command may be taken later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, SendErrorKind::Unconfirmed | SendErrorKind::Behind)
    }

    /// The digest that stands for the key.
    pub fn id(&self) -> Option<&RecordId> {
        self.id.as_ref()
    }

    /// What went wrong and what can be done, without job and digest.
    pub fn why(&self) -> &str {
        &self.why
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "job {job:?}, ")?;
        }
        if let Some(id) = &self.id {
            write!(f, "key {id}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for SendError {}
