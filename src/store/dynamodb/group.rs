//! Commits that became ready together, in one request; and the records that stood in their way, in
//! another.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{BatchStatementResponse, KeysAndAttributes};
use tracing::warn;

use super::error::kind;
use super::item::{self, Attributes};
use super::{conflict, partiql};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Change, ConditionalWrite, RecordId};
use crate::runtime::{Clock, Entropy, OsEntropy, SystemClock};
use crate::store::Commit;
use crate::store::gather::{Gather, Requests, Told, Turn};

/// What DynamoDB takes in one request.
const STATEMENTS: usize = 25;
const KEYS: usize = 100;
/// Requests of each kind under way: with more they would be smaller, at a third more of CPU.
const AT_ONCE: usize = 2;

/// The commits and the reads of one table that wait for others.
pub(super) struct Groups {
    writes: Gather<Writes>,
    reads: Gather<Reads>,
    writes_off: Off,
    reads_off: Off,
}

/// What became of a commit among others.
pub(super) enum Grouped {
    /// It is certain, or it failed.
    Said(Result<Commit, Error>),
    /// It is to be sent by itself, and this kept meanwhile.
    Alone(Option<Turn>),
}

impl Groups {
    pub fn new(client: &Client, table: &str) -> Self {
        let (writes_off, reads_off) = (Off::default(), Off::default());
        let (client, table) = (client.clone(), Arc::<str>::from(table));
        let writes =
            Writes { client: client.clone(), table: table.clone(), off: writes_off.clone() };
        let reads = Reads { client, table, off: reads_off.clone() };
        Self {
            writes: Gather::new(writes, STATEMENTS, AT_ONCE),
            reads: Gather::new(reads, KEYS, AT_ONCE),
            writes_off,
            reads_off,
        }
    }

    /// Commits together with others.
    pub async fn commit(&self, write: &ConditionalWrite) -> Grouped {
        if self.writes_off.is_set() || !partiql::takes(write) {
            return Grouped::Alone(None);
        }
        let said = match self.writes.ask(&write.id, write.clone()).await {
            Told::Together(said) => said,
            Told::Alone(turn) => return Grouped::Alone(Some(turn)),
            Told::Lost => return Grouped::Said(Err(broken_off(&write.id))),
        };
        match said {
            Said::Commit(commit) => Grouped::Said(commit),
            Said::Taken => self.read(&write.id).await,
            Said::Later => later().await,
            Said::Alone => Grouped::Alone(None),
        }
    }

    /// The record that is there already. Whatever cannot be read is told by the write itself, which
    /// then is sent alone.
    async fn read(&self, id: &RecordId) -> Grouped {
        if self.reads_off.is_set() {
            return Grouped::Alone(None);
        }
        match self.reads.ask(id, id.clone()).await {
            Told::Together(Seen::Record(attributes)) => {
                Grouped::Said(conflict(id, Some(attributes)))
            }
            Told::Together(Seen::Later) => later().await,
            Told::Alone(turn) => Grouped::Alone(Some(turn)),
            Told::Together(Seen::Nothing) | Told::Lost => Grouped::Alone(None),
        }
    }
}

/// A moment for what was throttled; sent by itself then, it has the SDK's own patience.
async fn later() -> Grouped {
    let pause = Duration::from_millis(100).mul_f64(OsEntropy.jitter());
    let pause = pause.max(Duration::from_millis(25));
    SystemClock.sleep_until(SystemClock.now() + pause).await;
    Grouped::Alone(None)
}

fn broken_off(id: &RecordId) -> Error {
    Error::new(ErrorKind::StoreUnavailable, "batch")
        .with_id(id)
        .with_detail("its request broke off before it was answered")
}

/// That requests of one kind are not sent any more.
#[derive(Clone, Default)]
struct Off(Arc<AtomicBool>);

impl Off {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Says so once.
    fn set(&self, what: &str, code: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            warn!(
                code,
                "{what} is not to be had here, so each record is written by itself, in more requests; \
                 allow dynamodb:PartiQLInsert, dynamodb:PartiQLUpdate and dynamodb:BatchGetItem on \
                 the table of the claims"
            );
        }
    }
}

/// Codes that say that a kind of request will never do here.
const NEVER: [&str; 5] = [
    "AccessDeniedException",
    "AccessDenied",
    "UnknownOperationException",
    "UnsupportedOperationException",
    "NotImplemented",
];

fn is_never(code: Option<&str>) -> bool {
    code.is_some_and(|code| NEVER.contains(&code))
}

/// One statement's outcome.
enum Said {
    Commit(Result<Commit, Error>),
    /// There is a record already, and it has not come back.
    Taken,
    /// It was throttled, or others were in its way.
    Later,
    /// A request of its own will say.
    Alone,
}

struct Writes {
    client: Client,
    table: Arc<str>,
    off: Off,
}

impl Requests for Writes {
    type Asked = ConditionalWrite;
    type Answer = Said;

    async fn send(&self, writes: Vec<ConditionalWrite>) -> Vec<Said> {
        let statements = writes.iter().filter_map(|write| partiql::statement(&self.table, write));
        let statements: Vec<_> = statements.collect();
        let sent = self.client.batch_execute_statement().set_statements(Some(statements));
        let responses = match sent.send().await {
            Ok(answered) => answered.responses.unwrap_or_default(),
            Err(error) => return self.refused(&writes, error),
        };
        if responses.len() != writes.len() {
            // Nobody can say whose these are.
            return writes.iter().map(|write| Said::Commit(Err(broken_off(&write.id)))).collect();
        }
        writes.iter().zip(responses).map(|(write, response)| self.said(write, response)).collect()
    }
}

impl Writes {
    /// No statement has an outcome of its own.
    fn refused<E>(&self, writes: &[ConditionalWrite], error: SdkError<E>) -> Vec<Said>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        if is_never(error.code()) {
            self.off.set("BatchExecuteStatement", error.code().unwrap_or_default());
        }
        let is_certain = matches!(error, SdkError::ServiceError(_));
        if is_certain && kind(&error) == ErrorKind::StoreRefused {
            return writes.iter().map(|_| Said::Alone).collect();
        }
        let error = Arc::new(error);
        let unclear = |write: &ConditionalWrite| {
            let error = Error::new(ErrorKind::StoreUnavailable, "batch").with_source(error.clone());
            Said::Commit(Err(error.with_id(&write.id)))
        };
        writes.iter().map(unclear).collect()
    }

    fn said(&self, write: &ConditionalWrite, response: BatchStatementResponse) -> Said {
        let Some(error) = response.error else {
            return Said::Commit(Ok(Commit::Applied));
        };
        let code = error.code.as_ref().map(|code| code.as_str()).unwrap_or_default();
        let is_new = matches!(write.change, Change::Create(_));
        match code {
            "DuplicateItem" | "ConditionalCheckFailed" if is_new && error.item.is_none() => {
                Said::Taken
            }
            "DuplicateItem" | "ConditionalCheckFailed" => {
                Said::Commit(conflict(&write.id, error.item))
            }
            "ThrottlingError"
            | "ProvisionedThroughputExceeded"
            | "RequestLimitExceeded"
            | "InternalServerError"
            | "TransactionConflict" => Said::Later,
            _ => {
                if is_never(Some(code)) {
                    self.off.set("BatchExecuteStatement", code);
                }
                Said::Alone
            }
        }
    }
}

/// What one key's read came to.
enum Seen {
    Record(Attributes),
    Nothing,
    Later,
}

struct Reads {
    client: Client,
    table: Arc<str>,
    off: Off,
}

impl Requests for Reads {
    type Asked = RecordId;
    type Answer = Seen;

    async fn send(&self, ids: Vec<RecordId>) -> Vec<Seen> {
        let keys: Vec<_> = ids.iter().map(item::key).collect();
        let keys = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
        let Ok(keys) = keys else {
            return Vec::new();
        };
        let sent = self.client.batch_get_item().request_items(&*self.table, keys).send().await;
        let mut got = match sent {
            Ok(got) => got,
            Err(error) => {
                if is_never(error.code()) {
                    self.off.set("BatchGetItem", error.code().unwrap_or_default());
                }
                return Vec::new();
            }
        };
        let found = got.responses.as_mut().and_then(|tables| tables.remove(&*self.table));
        let found = found.unwrap_or_default().into_iter();
        let mut found: Vec<_> =
            found.filter_map(|item| Some((item::id(&item).ok()?, item))).collect();
        let left = got.unprocessed_keys.as_ref().and_then(|tables| tables.get(&*self.table));
        let is_left = |id: &RecordId| left.is_some_and(|left| left.keys.contains(&item::key(id)));
        let mut seen = |id: &RecordId| match found.iter().position(|(of, _)| of == id) {
            Some(at) => Seen::Record(found.swap_remove(at).1),
            None if is_left(id) => Seen::Later,
            None => Seen::Nothing,
        };
        ids.iter().map(&mut seen).collect()
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Groups")
    }
}
