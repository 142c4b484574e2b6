//! What an operator may do to records: guarded, fenced transitions.
//!
//! Each takes the record as it was seen and answers the one write that changes it, or why not. The
//! write is a claim of its own (a new id, the next token), so whoever held the record before loses.

mod forget;
mod import;
mod refusal;
mod release;
mod replay;
mod resolve;

use super::write::{Change, ConditionalWrite, Expect, Field};
use super::{ClaimId, Record, Timestamp};

pub use forget::{Forget, forget};
pub use import::{Imported, import};
pub use refusal::NotNow;
pub use release::{Release, release};
pub use replay::{Replay, replay};
pub use resolve::{Resolution, Resolve, resolve};

/// A write of these fields by an operator, fenced like a claim.
fn write(
    record: &Record,
    claim_id: &ClaimId,
    now: Timestamp,
    fields: impl IntoIterator<Item = Field>,
) -> ConditionalWrite {
    let mut all = vec![
        Field::ClaimId(claim_id.clone()),
        Field::Token(record.token.next()),
        Field::Rev(record.rev.next()),
        Field::UpdatedAt(now),
    ];
    all.extend(fields);
    ConditionalWrite {
        id: record.id.clone(),
        expect: Expect::At { claim_id: record.claim_id.clone(), rev: record.rev },
        change: Change::Update(all),
    }
}

#[cfg(test)]
mod tests;
