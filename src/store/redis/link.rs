//! The connection: one for all, made when it is needed, and made anew when it broke.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind as Kind, RedisError, RedisResult,
    ScriptInvocation, ServerErrorKind, Value,
};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use super::fault::{fault, is_broken};
use crate::error::Error;

/// How long a connection may take to be made, with TLS and log-in.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWERING: Duration = Duration::from_secs(2);

/// Whoever needs the connection waits for the same one: a server that is away costs each of them
/// two seconds, and not one after another.
type Opening = Shared<BoxFuture<'static, RedisResult<MultiplexedConnection>>>;

/// The crate's own connection manager keeps a connection that does not answer. After a freeze that
/// may be all that ever happens on it, so this one is dropped at its first silence.
#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    opening: Arc<Mutex<Opening>>,
}

impl Link {
    /// Connects nowhere yet.
    pub fn new(client: Client) -> Self {
        let opening = Arc::new(Mutex::new(open(client.clone())));
        Self { client, opening }
    }

    /// Where it leads; no user, no password.
    pub fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Runs a script, which is loaded where the server does not know it. Nothing else is sent again
    /// here: whoever asked knows whether that is safe.
    pub async fn run(
        &self,
        operation: &'static str,
        script: &ScriptInvocation<'_>,
    ) -> Result<Value, Error> {
        let opening = self.opening();
        let ran = match opening.clone().await {
            Ok(mut connection) => script.invoke_async(&mut connection).await,
            Err(error) => Err(error),
        };
        self.seen(operation, &opening, ran)
    }

    /// Sends one command.
    pub async fn send(&self, operation: &'static str, command: &Cmd) -> Result<Value, Error> {
        let opening = self.opening();
        let sent = match opening.clone().await {
            Ok(mut connection) => command.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
        self.seen(operation, &opening, sent)
    }

    fn opening(&self) -> Opening {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up the connection if it broke, or leads to the wrong node of a cluster: the next one
    /// goes to the right one, or to where the URL leads.
    fn seen(
        &self,
        operation: &'static str,
        opening: &Opening,
        came: RedisResult<Value>,
    ) -> Result<Value, Error> {
        came.map_err(|error| {
            let moved = error.redirect_node().and_then(|(node, _)| self.moved(&error, node));
            let next = moved.or_else(|| is_broken(&error).then(|| self.client.clone()));
            if let Some(client) = next {
                let mut current = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
                // Another may have seen it before, and made a new one.
                if current.ptr_eq(opening) {
                    *current = open(client);
                }
            }
            fault(operation, &error)
        })
    }

    /// All keys share one slot: where it is now, all of them are. Not for `ASK`, which holds for one
    /// question while the slot is on its way.
    fn moved(&self, error: &RedisError, node: &str) -> Option<Client> {
        if error.kind() != Kind::Server(ServerErrorKind::Moved) {
            return None;
        }
        let (host, port) = node.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let info = self.client.get_connection_info();
        // A node that does not know its own name leaves it out.
        let named = |here: &String| if host.is_empty() { here.clone() } else { host.to_owned() };
        let address = match info.addr() {
            ConnectionAddr::Tcp(here, _) => ConnectionAddr::Tcp(named(here), port),
            ConnectionAddr::TcpTls { host: here, insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls {
                    host: named(here),
                    port,
                    insecure: *insecure,
                    tls_params: tls_params.clone(),
                }
            }
            _ => return None,
        };
        Client::open(info.clone().set_addr(address)).ok()
    }
}

fn open(client: Client) -> Opening {
    let opening = async move {
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(ANSWERING));
        client.get_multiplexed_async_connection_with_config(&settings).await
    };
    opening.boxed().shared()
}
