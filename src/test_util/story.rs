//! What has happened under one key.

use std::collections::{BTreeMap, HashSet};

use crate::context::{EffectCall, Guarantee};
use crate::protocol::{EffectKey, Fingerprint, Record, Said};

/// What has happened to one effect of one key.
#[derive(Clone, Debug)]
pub struct EffectStory {
    /// What it has declared.
    pub guarantee: Guarantee,
    /// How often a handler came to it.
    pub begun: usize,
    /// How often a request went out.
    pub sent: usize,
    /// How often one was answered as done.
    pub done: usize,
    /// How often its provider was asked.
    pub asked: usize,
    /// The keys it went out under, in order, each with the digest of the request, where given.
    pub keys: Vec<(EffectKey, Option<Fingerprint>)>,
    /// Requests that may have done something, done ones included.
    pub(super) doubtful: usize,
    /// Calls that came back, with whatever answer.
    pub(super) heard: usize,
}

impl EffectStory {
    pub(super) fn new(guarantee: Guarantee) -> Self {
        Self {
            guarantee,
            begun: 0,
            sent: 0,
            done: 0,
            asked: 0,
            keys: Vec::new(),
            doubtful: 0,
            heard: 0,
        }
    }

    /// A request goes out. What is broken by that.
    pub(super) fn sends(
        &mut self,
        call: &EffectCall,
        refused: &HashSet<EffectKey>,
    ) -> Option<(u8, &'static str)> {
        let again = match self.guarantee {
            Guarantee::AtMostOnce if self.doubtful > 0 => {
                Some((3, "was sent again, and an earlier request may have done it"))
            }
            Guarantee::Reconcile if self.done > 0 => Some((2, "was sent again though it was done")),
            Guarantee::Keyed => self.keyed(call, refused),
            _ => None,
        };
        self.sent += 1;
        self.doubtful += 1;
        if self.keys.iter().all(|(key, _)| *key != call.key) {
            self.keys.push((call.key.clone(), call.request.clone()));
        }
        again
    }

    fn keyed(&self, call: &EffectCall, refused: &HashSet<EffectKey>) -> Option<(u8, &'static str)> {
        let (last, _) = self.keys.last()?;
        match self.keys.iter().find(|(key, _)| *key == call.key) {
            Some((key, _)) if key != last => Some((2, "went back to an earlier key")),
            Some((_, Some(request))) if call.request.as_ref().is_some_and(|it| it != request) => {
                Some((2, "was sent with another request under its key"))
            }
            None if !refused.contains(last) => {
                Some((2, "was sent under a new key, and no refusal under the last is recorded"))
            }
            _ => None,
        }
    }

    /// Its provider has answered.
    pub(super) fn heard(&mut self, is_probe: bool, came: Result<(), Said>) {
        self.heard += 1;
        match (is_probe, came) {
            (false, Ok(())) => self.done += 1,
            (false, Err(Said::NotSent | Said::Rejected | Said::Mismatch)) => self.doubtful -= 1,
            _ => {}
        }
    }
}

/// What has happened under one key.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// The record, as it was written last.
    pub record: Option<Record>,
    /// How often handlers were called.
    pub runs: usize,
    /// How often what a handler had staged was committed.
    pub staged: usize,
    /// Its effects, by name.
    pub effects: BTreeMap<String, EffectStory>,
    /// Of the first payload that ran.
    pub(super) payload: Option<Fingerprint>,
    /// Handlers that run now.
    pub(super) live: usize,
    /// Keys whose refusal is on the record, or was.
    pub(super) refused: HashSet<EffectKey>,
}
