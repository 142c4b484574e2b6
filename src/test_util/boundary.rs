//! The calls of an invocation that cross its boundary, and what may become of each.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::protocol::{Change, ConditionalWrite, Expect, Field, RecordId, Status, Timestamp};

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is named by `as_str`")]
pub enum Kind {
    Claim,
    TakeOver,
    Spend,
    KeepEffects,
    Renew,
    Complete,
    Release,
    Fail,
    Park,
    Fused,
    Mark,
    Send,
    Probe,
    Quarantine,
    Delay,
    Answer,
}

impl Kind {
    /// What a person calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::TakeOver => "take-over",
            Self::Spend => "budget spent",
            Self::KeepEffects => "effects written",
            Self::Renew => "renewal",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Fail => "fail",
            Self::Park => "park as unknown",
            Self::Fused => "commit at once",
            Self::Mark => "mark as quarantined",
            Self::Send => "request",
            Self::Probe => "question",
            Self::Quarantine => "quarantine",
            Self::Delay => "delay",
            Self::Answer => "answer",
        }
    }

    /// Whether it is a write of a record.
    pub const fn is_commit(self) -> bool {
        !matches!(self, Self::Send | Self::Probe | Self::Quarantine | Self::Delay | Self::Answer)
    }

    /// What a write is for.
    pub(super) fn of(write: &ConditionalWrite) -> Self {
        let (status, is_claim) = match &write.change {
            Change::Create(record) => (Some(record.status), true),
            Change::Update(fields) => (
                fields.iter().find_map(|field| match field {
                    Field::Status(status) => Some(*status),
                    _ => None,
                }),
                fields.iter().any(|field| matches!(field, Field::ClaimId(_))),
            ),
        };
        match (status, is_claim) {
            (Some(Status::Claimed), _) if write.expect == Expect::Absent => Self::Claim,
            (Some(Status::Claimed), _) => Self::TakeOver,
            (Some(Status::Completed), true) => Self::Fused,
            (Some(Status::Completed), false) => Self::Complete,
            (Some(Status::Released), _) => Self::Release,
            (Some(_), true) if !is_create(write) => Self::Spend,
            (Some(Status::Failed), _) => Self::Fail,
            (Some(Status::Unknown), _) => Self::Park,
            (None, _) if marks(write) => Self::Mark,
            (None, _) if write.lease_until().is_some() => Self::Renew,
            (None, _) => Self::KeepEffects,
        }
    }
}

fn is_create(write: &ConditionalWrite) -> bool {
    matches!(write.change, Change::Create(_))
}

fn marks(write: &ConditionalWrite) -> bool {
    match &write.change {
        Change::Create(_) => false,
        Change::Update(fields) => {
            fields.iter().any(|field| matches!(field, Field::Quarantine(Some(_))))
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One call on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Counts from 0 over all invocations.
    pub number: usize,
    /// Which invocation makes it, from 0.
    pub invocation: usize,
    /// When, by the true time.
    pub at: Timestamp,
    /// What it is.
    pub kind: Kind,
    /// The effect's name, if it is of one.
    pub effect: Option<String>,
    /// The operation, if it is of one.
    pub id: Option<RecordId>,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.effect.iter().try_for_each(|effect| write!(f, " of {effect}"))
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fate {
    /// It is made, and its answer comes back.
    #[default]
    Passes,
    /// The invocation dies, and the call is not made.
    DiesBefore,
    /// The call is made, and the invocation dies before it has the answer.
    DiesAfter,
    /// It is not made, and the caller is told that nothing is known.
    LosesRequest,
    /// It is made, and the caller is told that nothing is known.
    LosesReply,
    /// It is not made, and nobody ever says so.
    Hangs,
    /// It is made, and nobody ever says so.
    HangsAfter,
    /// A write whose caller is told that nothing is known, and that lands this much later, whoever
    /// has gone on or died meanwhile. Other calls: as a lost request.
    LandsLater(Duration),
    /// A write that another transaction stands in the way of. Other calls: as a lost request.
    Contends,
    /// A write that the store refuses for good. Other calls: as a lost request.
    Refused,
}

impl Fate {
    /// What a person calls it, of a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passes => "passed",
            Self::DiesBefore => "died before",
            Self::DiesAfter => "died after",
            Self::LosesRequest => "lost the request of",
            Self::LosesReply => "lost the reply to",
            Self::Hangs => "hung before",
            Self::HangsAfter => "hung after",
            Self::LandsLater(_) => "was held up at",
            Self::Contends => "contended at",
            Self::Refused => "was refused",
        }
    }

    /// Whether the call is made.
    pub const fn is_made(self) -> bool {
        matches!(self, Self::Passes | Self::DiesAfter | Self::LosesReply | Self::HangsAfter)
    }
}

/// Decides what becomes of each call.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Before the call; may take its time.
    async fn fate(&self, crossing: &Crossing) -> Fate;

    /// After it, where it is made; may take its time.
    async fn back(&self, _: &Crossing) {}

    /// Returns when the invocation dies of something else than a call.
    async fn doom(&self, _invocation: usize) {
        std::future::pending().await
    }
}
