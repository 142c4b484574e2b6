//! Writes of one record, one after another: no request holds one record twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use super::locked;
use crate::protocol::RecordId;

type Standing = Arc<Mutex<HashMap<RecordId, Arc<Turns<()>>>>>;

/// The line of each record that somebody stands in.
#[derive(Default)]
pub(super) struct Lines(Standing);

/// The head of a record's line, until this is dropped.
pub(super) struct Line {
    id: RecordId,
    turn: Option<OwnedMutexGuard<()>>,
    standing: Standing,
}

impl Lines {
    /// Waits for whoever came before.
    pub async fn stand(&self, id: &RecordId) -> Line {
        let turns = locked(&self.0).entry(id.clone()).or_default().clone();
        let mut line = Line { id: id.clone(), turn: None, standing: self.0.clone() };
        line.turn = Some(turns.lock_owned().await);
        line
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.turn = None;
        let mut standing = locked(&self.standing);
        // The last one takes the line away.
        if standing.get(&self.id).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            standing.remove(&self.id);
        }
    }
}
