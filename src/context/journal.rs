//! What an attempt has gathered to be written.

use std::collections::HashSet;
use std::time::Duration;

use crate::error::{Error, ErrorKind, HandlerError};
use crate::protocol::{
    ConditionalWrite, EffectRecord, Held, Retention, Timestamp, Verdict, keep_effects, renew,
};
use crate::service::{Commits, Settled};
use crate::store::{RowWrite, StagedWrite};

/// What the attempt has gathered to be written. Behind one lock, because one claim's writes go one
/// after another.
pub(crate) struct Journal {
    pub held: Held,
    pub staged: Staged,
    pub(super) begun: HashSet<String>,
    pub(super) has_unwritten_effects: bool,
    /// A write of effects, or a renewal, whose outcome is not known: whoever waited for it called it
    /// off half-way, or the store did not say.
    in_doubt: Option<ConditionalWrite>,
}

impl Journal {
    pub fn new(held: Held) -> Self {
        Self {
            held,
            staged: Staged::new(),
            begun: HashSet::new(),
            has_unwritten_effects: false,
            in_doubt: None,
        }
    }

    /// Notes what is to be written of effect `name`.
    pub(super) fn note(&mut self, name: &str, record: Option<EffectRecord>) {
        if let Some(record) = record {
            self.held.effects.insert(name.to_owned(), record);
            self.has_unwritten_effects = true;
        }
    }

    /// Writes the effects that are not written yet. Answers false if the claim is lost.
    pub(super) async fn write_effects(
        &mut self,
        commits: &Commits,
        until: Timestamp,
    ) -> Result<bool, Error> {
        let is_mine = self.make_certain(commits, until).await?;
        if !is_mine || !self.has_unwritten_effects {
            return Ok(is_mine);
        }
        self.in_doubt = Some(keep_effects(&self.held, commits.clock().now()));
        self.has_unwritten_effects = false;
        self.make_certain(commits, until).await
    }

    /// Extends the lease, and writes the effects so far. Answers false if the claim is lost.
    pub(super) async fn renew(
        &mut self,
        commits: &Commits,
        lease_until: Timestamp,
        kept: (Retention, Duration),
        until: Timestamp,
    ) -> Result<bool, Error> {
        if !self.make_certain(commits, until).await? {
            return Ok(false);
        }
        self.in_doubt = Some(renew(&self.held, lease_until, kept, commits.clock().now()));
        self.has_unwritten_effects = false;
        self.make_certain(commits, until).await
    }

    /// Sends what is in doubt again, as its condition holds once: the next write must know the
    /// revision it comes after. Answers false if the claim is lost.
    pub async fn make_certain(
        &mut self,
        commits: &Commits,
        until: Timestamp,
    ) -> Result<bool, Error> {
        let Some(write) = &self.in_doubt else {
            return Ok(true);
        };
        // Whoever waits for this may stop to: until the answer is there, it stays in doubt.
        match commits.settle(write, &[], until).await {
            Ok(Settled::Applied) => {
                self.held.rev = self.held.rev.next();
                if let Some(lease_until) = write.lease_until() {
                    self.held.lease_until = lease_until;
                }
                self.in_doubt = None;
                Ok(true)
            }
            Ok(Settled::LostLease | Settled::Refused(_)) => Ok(false),
            Err(error) => {
                // It has not landed, for certain.
                if error.kind() == ErrorKind::StoreRefused {
                    self.in_doubt = None;
                    self.has_unwritten_effects = true;
                }
                Err(error)
            }
        }
    }
}

/// What commits with the completion, and what it means if a condition of it does not hold.
pub(crate) struct Staged {
    writes: Vec<StagedWrite>,
    refusals: Vec<Option<HandlerError>>,
    /// The last of them clears a unique message's row: not for a completion alone.
    has_clearing: bool,
}

impl Staged {
    pub const fn new() -> Self {
        Self { writes: Vec::new(), refusals: Vec::new(), has_clearing: false }
    }

    /// Adds a write. DynamoDB takes one write of a row in a transaction, so no store is given two.
    pub fn push(
        &mut self,
        write: StagedWrite,
        refused: Option<HandlerError>,
    ) -> Result<(), HandlerError> {
        if let StagedWrite::Row(row) = &write
            && self
                .writes
                .iter()
                .any(|other| matches!(other, StagedWrite::Row(other) if other.at() == row.at()))
        {
            return Err(HandlerError::terminal(format!(
                "a row of {} is written twice by one job; stage one write that does both",
                row.at().0
            )));
        }
        self.writes.push(write);
        self.refusals.push(refused);
        Ok(())
    }

    pub fn writes(&self) -> &[StagedWrite] {
        &self.writes
    }

    /// Adds the row of a unique message, which goes as its job ends; after all other writes.
    pub fn and_clear(&mut self, row: Option<RowWrite>) {
        if let Some(row) = row {
            self.writes.push(row.into());
            self.has_clearing = true;
        }
    }

    /// What lands with an attempt that ends like this.
    pub fn landing(&self, verdict: &Verdict) -> &[StagedWrite] {
        let from = match verdict {
            Verdict::Completed(_) => 0,
            Verdict::Failed | Verdict::Unknown => {
                self.writes.len() - usize::from(self.has_clearing)
            }
            Verdict::Released { .. } => self.writes.len(),
        };
        self.writes.get(from..).unwrap_or_default()
    }

    /// What the refusal of the write at `index` of those that were to land means. `None` if there
    /// is nothing to clear any more, and all else may land.
    pub fn refusal(&mut self, index: usize, verdict: &Verdict) -> Option<HandlerError> {
        let index = index + self.writes.len() - self.landing(verdict).len();
        if self.has_clearing && index + 1 == self.writes.len() {
            self.writes.pop();
            self.has_clearing = false;
            return None;
        }
        let declared = self.refusals.get_mut(index).and_then(Option::take);
        Some(declared.unwrap_or_else(|| {
            HandlerError::terminal(format!("the condition of staged write {index} did not hold"))
        }))
    }
}
