//! Asking a worker to end while it runs.

use tokio::sync::watch;

use crate::protocol::Timestamp;
use crate::runtime::Clock;

/// Whether, and by when, a worker is to end. Clones share it.
#[derive(Clone)]
pub(crate) struct Stopping(watch::Sender<Option<Timestamp>>);

impl Stopping {
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Asks: nothing is begun from now on, and what runs is stopped at `by`.
    pub fn ask(&self, by: Timestamp) {
        self.0.send_replace(Some(by));
    }

    pub fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Returns at `stop`, or earlier if asked meanwhile.
    pub async fn reached(&self, clock: &dyn Clock, stop: Timestamp) {
        let mut told = self.0.subscribe();
        loop {
            let at = told.borrow_and_update().map_or(stop, |by| by.min(stop));
            tokio::select! {
                () = clock.sleep_until(at) => return,
                Ok(()) = told.changed() => {}
            }
        }
    }
}
