//! The only place that reads time or randomness, and the only one that starts tasks.

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use crate::protocol::{ClaimId, Timestamp};

/// Where time comes from.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, now.
    fn now(&self) -> Timestamp;

    /// Returns once `now()` is at or past `at`.
    async fn sleep_until(&self, at: Timestamp);
}

/// Where randomness comes from.
pub trait Entropy: Send + Sync + 'static {
    /// A claim id that no other attempt has: 128 random bits.
    fn claim_id(&self) -> ClaimId;

    /// A number in 0..1, to spread retries.
    fn jitter(&self) -> f64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
    async fn sleep_until(&self, at: Timestamp) {
        // Again and again: the wall clock may be set back while this sleeps.
        loop {
            let left = at.remaining(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    #[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
    fn claim_id(&self) -> ClaimId {
        ClaimId::new(uuid::Uuid::new_v4().simple().to_string())
    }

    #[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
    fn jitter(&self) -> f64 {
        fastrand::f64()
    }
}

/// `work`, unless `at` comes first.
pub async fn before<T>(
    clock: &dyn Clock,
    at: Timestamp,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        // The work first: a result that is there is never thrown away.
        biased;
        done = work => Some(done),
        () = clock.sleep_until(at) => None,
    }
}

/// Whether Lambda runs this process.
pub(crate) fn is_lambda() -> bool {
    std::env::var_os(LAMBDA).is_some()
}

/// What Lambda sets, and nobody else.
pub(crate) const LAMBDA: &str = "AWS_LAMBDA_RUNTIME_API";

/// The allocator of the shipped worker, which takes a tenth off a message's work. For a program of your own, it is
/// `#[global_allocator] static ALLOCATOR: Allocator = Allocator;`.
#[cfg(feature = "lambda")]
pub use mimalloc::MiMalloc as Allocator;

/// Tokio's runtime for a worker's `main`. In Lambda, where a function has a part of a core, it is one
/// thread: handing a message's work from one to another takes longer than much of that work. A job
/// that keeps a thread busy for long is then better off with `#[tokio::main]`. Elsewhere, and where
/// Lambda gives one process several invocations at once, it has a thread for each core.
pub fn executor() -> std::io::Result<tokio::runtime::Runtime> {
    let is_one_by_one = is_lambda() && std::env::var_os("AWS_LAMBDA_MAX_CONCURRENCY").is_none();
    let mut builder = if is_one_by_one {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build()
}

/// A task that stops when its handle is dropped, so that none outlives the invocation it belongs
/// to unseen.
#[derive(Debug)]
pub struct Task<T>(tokio::task::JoinHandle<T>);

/// Starts `work` beside the caller. A panic in it stays in it.
#[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(tokio::spawn(work))
}

/// Starts `work`, which blocks its thread, where that holds nobody up. Until it has begun, dropping
/// the handle calls it off; from then on it runs to its end, whoever waits for it or not.
#[allow(clippy::disallowed_methods, reason = "this is what everybody else uses instead")]
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    Task(tokio::task::spawn_blocking(work))
}

/// How a task ended without a result.
#[derive(Debug)]
pub enum Ended {
    /// It panicked, with this message.
    Panicked(String),
    /// It was stopped.
    Stopped,
}

impl<T> Task<T> {
    /// Waits for the task's end.
    pub async fn join(&mut self) -> Result<T, Ended> {
        (&mut self.0).await.map_err(|error| match error.try_into_panic() {
            Ok(payload) => Ended::Panicked(panic_message(payload.as_ref())),
            Err(_) => Ended::Stopped,
        })
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Asks the task to stop at its next await point. It has stopped once `join` returns.
    pub fn stop(&self) {
        self.0.abort();
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
