//! The one place where providers are called: a test may watch it. Calls come boxed: a client's
//! future has tens of KB, and each layer around it would hold it again.

use tracing::field::Empty;
use tracing::{Instrument, info_span};

use super::Effect;
#[cfg(any(test, feature = "test-util"))]
use crate::context::Guarantee;
use crate::error::HandlerError;
use crate::telemetry::{SPANS, failed};

/// What is called, and under which promise.
#[derive(Clone, Copy)]
pub(super) enum Call {
    Repeated,
    Keyed,
    KeyedProbe,
    Reconciled,
    Probe,
    Once,
}

impl Effect {
    /// Makes a call of the provider.
    #[cfg(not(any(test, feature = "test-util")))]
    pub(super) async fn observed<T, E: Into<HandlerError>>(
        &self,
        _: Call,
        calling: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError> {
        self.measured(calling).await
    }

    /// The call in a span of its own, and how long it took.
    async fn measured<T, E: Into<HandlerError>>(
        &self,
        calling: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError> {
        let _timed = self.context.timed();
        let span = info_span!(
            target: SPANS,
            "effect",
            otel.name = format!("effect {}", self.name),
            otel.kind = "client",
            otel.status_code = Empty,
        );
        let came = calling.instrument(span.clone()).await;
        if came.is_err() {
            failed(&span);
        }
        came.map_err(Into::into)
    }

    /// Makes a call of the provider, under the eyes of the worker's observer.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) async fn observed<T, E: Into<HandlerError>>(
        &self,
        call: Call,
        calling: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HandlerError> {
        let call = match call {
            Call::Repeated => (Guarantee::AtLeastOnce, false),
            Call::Keyed => (Guarantee::Keyed, false),
            Call::KeyedProbe => (Guarantee::Keyed, true),
            Call::Reconciled => (Guarantee::Reconcile, false),
            Call::Probe => (Guarantee::Reconcile, true),
            Call::Once => (Guarantee::AtMostOnce, false),
        };
        let calling = self.measured(calling);
        self.context.observed(&self.name, call, self.request.as_ref(), calling).await
    }
}
