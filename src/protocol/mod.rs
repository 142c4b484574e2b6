//! The protocol: pure functions from (record, request, now) to a decision.
//!
//! Nothing here reads a clock, draws a random number or talks to a store; the caller passes
//! those in. A crash can therefore only fall *between* two calls, and every such gap is named
//! where it is defended against.

mod advice;
mod claim;
mod effect;
mod key;
mod lease;
mod operate;
mod outbox;
mod record;
mod retry;
mod settle;
mod time;
mod trace;
mod write;
mod xml;

pub use advice::KeyAdvice;
pub use claim::{Claim, ClaimRequest, claim};
pub use effect::{Begin, Doubt, EffectClass, Said, after_error, begin};
pub use key::{EffectKey, Fingerprint, IdempotencyKey, InvalidKey, RecordId};
pub use lease::Lease;
pub use operate::{
    Forget, Imported, NotNow, Release, Replay, Resolution, Resolve, forget, import, release,
    replay, resolve,
};
pub use outbox::{InvalidEntry, OutboxEntry, Unique, as_made, event_id, unique_row};
pub use record::{
    ClaimId, EffectRecord, EffectState, FencingToken, Output, Quarantine, Record, Rev,
    SCHEMA_VERSION, Status,
};
pub use retry::{MAX_RETRY_AFTER, RetryPolicy};
pub use settle::{
    Conflict, Failure, Held, Verdict, complete, fail, keep_effects, mark_quarantined, renew,
    resolve_conflict,
};
pub use time::{EpochSeconds, Retention, Timestamp, handler_stop};
pub use trace::{ATTRIBUTE_TRACE, InvalidTraceParent, TraceParent};
pub use write::{Change, ConditionalWrite, Expect, Field};
#[cfg(feature = "producer")]
pub(crate) use xml::is_xml;
pub(crate) use xml::xml_json;
