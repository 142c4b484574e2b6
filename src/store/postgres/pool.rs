//! Connections: so many, each with its bounds, lent to one at a time.

use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType, Timeouts,
};
use tokio_postgres::Client;

use super::address::Address;
use super::fault::{fault, kind};
use super::tls;
use crate::error::{Error, ErrorKind};

/// How long a commit waits for a connection that is free.
const PATIENCE: Duration = Duration::from_secs(2);
/// One that was not used for so long is asked whether it still works: a process that was frozen
/// has slept through its end.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// What holds for each connection. Its waits end by themselves; and a process that is frozen in a
/// transaction holds no lock for longer than this. Every commit is on the disk before it is
/// answered, whatever the server does otherwise: a crash would forget completions whose messages
/// are deleted already.
const SESSION: &str = "SET statement_timeout = '5s'; SET lock_timeout = '2s'; \
    SET idle_in_transaction_session_timeout = '10s'; \
    SET default_transaction_isolation = 'read committed'; \
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

pub(super) fn pool(address: &Address) -> Result<Pool, Error> {
    let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), tls::connector(address)?, settings);
    Pool::builder(manager)
        .runtime(Runtime::Tokio1)
        .max_size(address.pool)
        // The one used last: it is the most likely to be there still.
        .queue_mode(QueueMode::Lifo)
        .timeouts(Timeouts {
            wait: Some(PATIENCE),
            // Not only the connection: TLS and the password take their turns, too.
            create: Some(address.connecting().saturating_mul(2)),
            recycle: Some(PATIENCE),
        })
        .post_create(Hook::async_fn(|client, _| {
            Box::pin(async move { client.batch_execute(SESSION).await.map_err(HookError::Backend) })
        }))
        .pre_recycle(Hook::async_fn(|client, metrics| {
            let is_forgotten = metrics.last_used() > FORGOTTEN;
            Box::pin(async move {
                match is_forgotten {
                    true => client.batch_execute("").await.map_err(HookError::Backend),
                    false => Ok(()),
                }
            })
        }))
        .build()
        .map_err(|error| Error::new(ErrorKind::Config, "make the pool").with_source(error))
}

/// A connection that goes back to the pool once it is [given back](Self::give_back). If it is not,
/// as when whoever has it is called off in the middle, it is closed: the server then takes back
/// what was not committed.
pub(super) struct Lent(Option<Object>);

impl Lent {
    /// `place` is where the pool's server is: that is what most often is wrong.
    pub async fn from(pool: &Pool, operation: &'static str, place: &str) -> Result<Self, Error> {
        match pool.get().await {
            Ok(object) => Ok(Self(Some(object))),
            Err(
                PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)),
            ) => {
                let is_refused = kind(&error) == ErrorKind::StoreRefused;
                let is_tls = is_refused && error.to_string().contains("TLS");
                let hint = if is_tls { ": see sslmode and sslrootcert in the URL" } else { "" };
                Err(fault(operation, error).with_detail(format!("{place}{hint}")))
            }
            Err(PoolError::Timeout(TimeoutType::Wait)) => {
                Err(unavailable(operation).with_detail(format!(
                    "{place}: no connection was free in time; pool_size in the URL says how many \
                     there are"
                )))
            }
            Err(PoolError::Timeout(_)) => {
                Err(unavailable(operation).with_detail(format!("{place}: no connection in time")))
            }
            Err(error) => Err(unavailable(operation).with_source(error)),
        }
    }

    pub fn client(&mut self) -> Result<&mut Client, Error> {
        // It is there until it is given back.
        let client = self.0.as_deref_mut().ok_or_else(|| unavailable("connect"))?;
        Ok(client)
    }

    /// Gives it back after what was `done` on it, unless it may be broken, or at work still.
    pub fn after<T>(self, done: Result<T, Error>) -> Result<T, Error> {
        match &done {
            Err(error) if error.kind() == ErrorKind::StoreUnavailable => {}
            // What was begun is rolled back before anything else is done on it.
            _ => self.give_back(),
        }
        done
    }

    pub fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

pub(super) fn unavailable(operation: &'static str) -> Error {
    Error::new(ErrorKind::StoreUnavailable, operation)
}
