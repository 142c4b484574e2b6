//! Tells what was noted to whoever gathers it.

use super::emf::Emf;
use super::meter::Meter;
use crate::protocol::Timestamp;
use crate::runtime::Clock;

/// Tells what a worker has noted: its metrics if it was given a form for them, and its traces.
#[derive(Debug)]
pub(crate) struct Teller {
    emf: Option<Emf>,
}

impl Teller {
    pub fn new(emf: Option<Emf>) -> Self {
        Self { emf }
    }

    /// Tells all that has not been told yet, or gives up at `by`.
    pub async fn tell(&self, meter: &Meter, clock: &dyn Clock, by: Timestamp) {
        if let Some(emf) = &self.emf {
            emf.flush(meter, clock.now());
        }
        #[cfg(feature = "otel")]
        super::flush_traces(clock, by).await;
        #[cfg(not(feature = "otel"))]
        let _ = by;
    }
}
