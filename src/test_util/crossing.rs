//! One invocation: its calls, one by one, and its death.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::boundary::{Crossing, Fate, Gate, Kind};
use super::witness::Witness;
use crate::protocol::RecordId;
use crate::runtime::Clock;

/// What came of a call.
pub(super) enum Crossed<T> {
    Answered(T),
    /// Nothing is known to the caller.
    Lost,
    Contended,
    Refused,
}

/// An invocation as its calls see it.
pub(super) struct Life {
    pub number: usize,
    pub witness: Arc<Witness>,
    pub clock: Arc<dyn Clock>,
    gate: Arc<dyn Gate>,
    calls: Arc<AtomicUsize>,
    is_over: AtomicBool,
    ends: Notify,
    /// The calls of providers that are out, with their fates.
    out: Mutex<HashMap<(RecordId, String), (Crossing, Fate)>>,
}

impl Life {
    pub fn new(
        number: usize,
        witness: Arc<Witness>,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn Gate>,
        calls: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let (is_over, ends) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { number, witness, clock, gate, calls, is_over, ends, out: Mutex::default() })
    }

    /// Returns when the invocation dies.
    pub async fn ended(&self) {
        tokio::select! {
            biased;
            () = self.ends.notified() => {}
            () = self.gate.doom(self.number) => self.is_over.store(true, Ordering::Relaxed),
        }
    }

    /// From now on nothing of it crosses the boundary.
    pub fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    async fn die<T>(&self) -> T {
        self.over();
        self.ends.notify_one();
        std::future::pending().await
    }

    /// Makes a call, or not, and answers, or not; or leaves it to `later`, for that much later.
    pub async fn cross<T>(
        &self,
        kind: Kind,
        id: Option<&RecordId>,
        calling: impl Future<Output = T>,
        later: impl FnOnce(Duration),
    ) -> Crossed<T> {
        let (crossing, fate) = self.begin(kind, None, id).await;
        match fate {
            Fate::LosesRequest => Crossed::Lost,
            Fate::LandsLater(wait) => {
                later(wait);
                Crossed::Lost
            }
            Fate::Contends => Crossed::Contended,
            Fate::Refused => Crossed::Refused,
            _ => {
                let came = calling.await;
                if self.end(&crossing, fate).await {
                    Crossed::Answered(came)
                } else {
                    Crossed::Lost
                }
            }
        }
    }

    /// The same for a call that somebody else makes, between this and [`answered`](Self::answered).
    /// Answers whether it is to be made.
    pub async fn leaves(&self, kind: Kind, effect: &str, id: &RecordId) -> bool {
        let (crossing, fate) = self.begin(kind, Some(effect), Some(id)).await;
        if fate.is_made() {
            self.out().insert((id.clone(), effect.to_owned()), (crossing, fate));
        }
        fate.is_made()
    }

    /// Answers whether the caller gets the answer.
    pub async fn answered(&self, effect: &str, id: &RecordId) -> bool {
        let out = self.out().remove(&(id.clone(), effect.to_owned()));
        match out {
            Some((crossing, fate)) => self.end(&crossing, fate).await,
            None => true,
        }
    }

    fn out(&self) -> std::sync::MutexGuard<'_, HashMap<(RecordId, String), (Crossing, Fate)>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(
        &self,
        kind: Kind,
        effect: Option<&str>,
        id: Option<&RecordId>,
    ) -> (Crossing, Fate) {
        if self.is_over.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let crossing = Crossing {
            number: self.calls.fetch_add(1, Ordering::Relaxed),
            invocation: self.number,
            at: self.clock.now(),
            kind,
            effect: effect.map(ToOwned::to_owned),
            id: id.cloned(),
        };
        let fate = self.gate.fate(&crossing).await;
        self.witness.crossed(&crossing, fate);
        match fate {
            Fate::DiesBefore => self.die().await,
            Fate::Hangs => std::future::pending().await,
            _ => (crossing, fate),
        }
    }

    async fn end(&self, crossing: &Crossing, fate: Fate) -> bool {
        self.gate.back(crossing).await;
        match fate {
            Fate::DiesAfter => self.die().await,
            Fate::HangsAfter => std::future::pending().await,
            Fate::LosesReply => false,
            _ => true,
        }
    }
}
