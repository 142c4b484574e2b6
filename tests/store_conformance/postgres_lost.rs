//! A connection to Postgres that breaks once a commit has landed, before its answer is read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{Conflict, Output, Retention, complete, resolve_conflict};
use onlyonce::runtime::{Task, spawn};
use onlyonce::store::{Commit, PostgresStore, SqlStatement, StagedWrite, Store};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::records::{NOW, first_claim};
use crate::server::Postgres;

/// Passes everything on, until it sees what it waits for: that is passed on, too, but its answer
/// breaks the connection.
struct Between {
    address: SocketAddr,
    is_armed: Arc<AtomicBool>,
    _serving: Task<()>,
}

impl Between {
    async fn start(port: u16, waits_for: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = is_armed.clone();
        let serving = spawn(async move {
            let mut open: Vec<Task<()>> = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                open.push(spawn(pass(client, server, waits_for, armed.clone())));
            }
        });
        Self { address, is_armed, _serving: serving }
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    waits_for: &'static [u8],
    is_armed: Arc<AtomicBool>,
) {
    let seen = AtomicBool::new(false);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = relay(from_client, to_server, |bytes| {
        let is_it = bytes.windows(waits_for.len()).any(|window| window == waits_for);
        if is_it && is_armed.swap(false, Ordering::SeqCst) {
            seen.store(true, Ordering::SeqCst);
        }
        true
    });
    // The server answers once it is on the disk.
    let back = relay(from_server, to_client, |_| !seen.load(Ordering::SeqCst));
    tokio::select! { () = there => {}, () = back => {} }
}

/// Passes on what comes for as long as `may` says so.
async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    may: impl Fn(&[u8]) -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !may(&buffer[..length]) || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn behind(waits_for: &'static [u8]) -> (Postgres, Between, PostgresStore) {
    let server = Postgres::with(&["fsync=off", "listen_addresses=127.0.0.1"]);
    PostgresStore::create(&server.url()).await.unwrap();
    let tables = "CREATE ROLE ada SUPERUSER LOGIN PASSWORD 'secret'; CREATE TABLE lines (n BIGINT)";
    server.foreign().await.batch_execute(tables).await.unwrap();
    let between = Between::start(server.port(), waits_for).await;
    let url = format!("postgres://ada:secret@{}/postgres?sslmode=disable", between.address);
    let store = PostgresStore::open_existing(&url).await.unwrap();
    (server, between, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_landed_unanswered_is_an_error_and_is_known_when_it_is_sent_again() {
    let (server, between, store) = behind(b"COMMIT\0").await;
    let (claim, held) = first_claim("k", "first");
    assert_eq!(store.commit(&claim, &[]).await.unwrap(), Commit::Applied);
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let line = || -> Vec<StagedWrite> {
        let sql = "INSERT INTO lines VALUES (1)".to_owned();
        vec![SqlStatement { sql, params: Vec::new(), expect_changes: Some(1) }.into()]
    };
    between.is_armed.store(true, Ordering::SeqCst);
    let error = store.commit(&done, &line()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    assert!(!between.is_armed.load(Ordering::SeqCst), "it broke at the commit");

    let Commit::Conflict(Some(current)) = store.commit(&done, &line()).await.unwrap() else {
        panic!("it has landed")
    };
    assert_eq!(resolve_conflict(&done, Some(&current)), Conflict::Applied);
    let lines = server.foreign().await.number("SELECT count(*) FROM lines").await;
    assert_eq!(lines, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_landed_unanswered_is_an_error_and_is_known_when_it_is_sent_again() {
    let (_server, between, store) = behind(b"INSERT INTO onlyonce").await;
    let (claim, held) = first_claim("k", "first");
    between.is_armed.store(true, Ordering::SeqCst);
    let error = store.commit(&claim, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    let Commit::Conflict(Some(current)) = store.commit(&claim, &[]).await.unwrap() else {
        panic!("it has landed")
    };
    assert_eq!(current.claim_id, held.claim_id);
}
