//! The one place where providers are called: a test may watch it. Calls come boxed: a client's
//! future has tens of KB, and each layer around it would hold it again.

use super::Effect;
#[cfg(any(test, feature = "test-util"))]
use crate::context::Guarantee;
use crate::error::HandlerError;

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
        let _timed = self.context.timed();
        calling.await.map_err(Into::into)
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
        let calling = async {
            let _timed = self.context.timed();
            calling.await.map_err(Into::into)
        };
        self.context.observed(&self.name, call, self.request.as_ref(), calling).await
    }
}
