//! Commits that share a request, over two DynamoDBs: each has its own outcome, whatever becomes of its
//! neighbours.

use std::io::Write;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use futures_util::future::{join_all, poll_immediate};
use onlyonce::error::ErrorKind;
use onlyonce::protocol::{
    Claim, ConditionalWrite, Conflict, Held, Output, Retention, Rev, Status, claim, complete,
    resolve_conflict,
};
use onlyonce::runtime::SystemClock;
use onlyonce::store::{Commit, DynamoStore, Store};

use crate::dynamo;
use crate::dynoxide::Dynoxide;
use crate::records::{NOW, SECOND, first_claim, request};
use crate::wire::Wire;

/// A store on a table of its own, and what stands between.
struct Desk {
    store: DynamoStore,
    wire: Wire,
    client: Client,
    table: String,
    _dynoxide: Option<Dynoxide>,
}

impl Desk {
    async fn of(client: Client, upstream: String, dynoxide: Option<Dynoxide>) -> Self {
        let table = format!("grouped-{:016x}", fastrand::Rng::new().u64(..));
        let plain = DynamoStore::with_client(client.clone(), &table);
        assert!(plain.create_table(&SystemClock).await.unwrap());
        let wire = Wire::to(upstream).await;
        let client = wire.through(&client);
        let store = DynamoStore::with_client(client.clone(), &table);
        Self { store, wire, client, table, _dynoxide: dynoxide }
    }

    async fn ministack() -> Self {
        let url = std::env::var("AWS_ENDPOINT_URL").unwrap();
        let upstream = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Self::of(dynamo::client().await, upstream, None).await
    }

    async fn dynoxide() -> Self {
        let dynoxide = Dynoxide::start();
        Self::of(dynoxide.client().await, dynoxide.address(), Some(dynoxide)).await
    }

    /// Another worker's.
    fn another(&self) -> DynamoStore {
        DynamoStore::with_client(self.client.clone(), &self.table)
    }

    async fn commit_all(&self, writes: &[ConditionalWrite]) -> Vec<Commit> {
        let all = writes.iter().map(async |write| self.store.commit(write, &[]).await.unwrap());
        join_all(all).await
    }

    /// Claims `keys`, and forgets how.
    async fn claimed(&self, keys: &[&str]) -> Vec<Held> {
        let (writes, held): (Vec<_>, Vec<_>) =
            keys.iter().map(|key| first_claim(key, &format!("first {key}"))).unzip();
        assert_eq!(self.commit_all(&writes).await, vec![Commit::Applied; keys.len()]);
        self.wire.asked();
        held
    }

    async fn status(&self, held: &Held) -> Status {
        self.store.load(&held.id).await.unwrap().unwrap().status
    }
}

fn done(held: &Held) -> ConditionalWrite {
    complete(held, Output::Stored("7".to_owned()), Retention::default(), NOW).0
}

fn asked(operation: &str, members: usize) -> (String, usize) {
    (operation.to_owned(), members)
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k {n}")).collect()
}

async fn fifty_keys_are_two_requests_and_so_are_their_completions(desk: Desk) {
    let (claims, held): (Vec<_>, Vec<_>) =
        keys(50).iter().map(|key| first_claim(key, &format!("first {key}"))).unzip();
    assert_eq!(desk.commit_all(&claims).await, vec![Commit::Applied; 50]);
    assert_eq!(
        desk.wire.asked(),
        [asked("BatchExecuteStatement", 25), asked("BatchExecuteStatement", 25)]
    );
    let ends: Vec<_> = held.iter().map(done).collect();
    assert_eq!(desk.commit_all(&ends).await, vec![Commit::Applied; 50]);
    assert_eq!(
        desk.wire.asked(),
        [asked("BatchExecuteStatement", 25), asked("BatchExecuteStatement", 25)]
    );

    // Their duplicates: refused together, and read together.
    let again: Vec<_> =
        keys(50).iter().map(|key| first_claim(key, &format!("second {key}")).0).collect();
    let found = desk.commit_all(&again).await;
    for (held, commit) in held.iter().zip(found) {
        let Commit::Conflict(Some(record)) = commit else { panic!("no record: {commit:?}") };
        assert_eq!((&record.id, &record.claim_id), (&held.id, &held.claim_id));
        assert_eq!(record.status, Status::Completed);
    }
    let mut members = (0, 0);
    for call in desk.wire.calls() {
        match call.operation.as_str() {
            "BatchExecuteStatement" => members.0 += call.members(),
            "BatchGetItem" => {
                members.1 += call.members();
                let table = &call.body["RequestItems"][&desk.table];
                assert_eq!(table["ConsistentRead"], true, "a late read would show no record");
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(members, (50, 50));
}

async fn each_of_a_group_has_its_own_outcome(desk: Desk) {
    let names = ["done", "foreign", "old", "over", "stale", "taken"];
    let held = desk.claimed(&names).await;
    let [to_do, foreign, old, over, stale, _] = &held[..] else { panic!() };
    let snapshot = desk.store.load(&stale.id).await.unwrap();
    assert_eq!(desk.commit_all(&[done(stale)]).await, [Commit::Applied]);
    let take = |record, key: &str| match claim(
        record,
        &request(key, &format!("thief {key}")),
        NOW + SECOND * 36,
    ) {
        Claim::Take { write, .. } => *write,
        other => panic!("{other:?}"),
    };
    let over_now = desk.store.load(&over.id).await.unwrap();
    desk.wire.asked();

    let wrong = Held { claim_id: request("x", "foreign").claim_id, ..foreign.clone() };
    let (nothing, _) = first_claim("never", "first");
    let nothing = Held { id: nothing.id, ..to_do.clone() };
    let writes = [
        first_claim("new", "first").0,
        first_claim("taken", "second").0,
        done(to_do),
        done(&wrong),
        done(&Held { rev: Rev(0), ..old.clone() }),
        done(&nothing),
        take(over_now, "over"),
        take(snapshot, "stale"),
        first_claim("also new", "first").0,
    ];
    let all = desk.commit_all(&writes).await;
    let requests = desk.wire.asked();
    assert_eq!(requests[0], asked("BatchExecuteStatement", 9), "{requests:?}");
    let outcome = |at: usize| match &all[at] {
        Commit::Applied => "applied".to_owned(),
        Commit::Conflict(None) => "nothing".to_owned(),
        Commit::Conflict(Some(record)) => {
            assert_eq!(record.id, writes[at].id);
            format!("{} by {}", record.status, record.claim_id.as_str())
        }
        Commit::Refused { .. } => "refused".to_owned(),
    };
    assert_eq!(
        (0..9).map(outcome).collect::<Vec<_>>(),
        [
            "applied",
            "claimed by first taken",
            "applied",
            "claimed by first foreign",
            "claimed by first old",
            "nothing",
            "applied",
            "completed by first stale",
            "applied",
        ]
    );
    assert_eq!(desk.status(to_do).await, Status::Completed);
    for untouched in [foreign, old] {
        assert_eq!(desk.status(untouched).await, Status::Claimed);
    }
    assert_eq!(desk.store.load(&nothing.id).await.unwrap(), None);
}

async fn of_fifty_claimers_of_one_key_one_wins(desk: Desk) {
    for round in 0..2 {
        let (one, many) = (format!("one {round}"), format!("many {round}"));
        let claims =
            |key: &str| (0..50).map(|n| first_claim(key, &format!("c {n}")).0).collect::<Vec<_>>();
        // Of one worker, and of fifty, each with a neighbour that makes it a group.
        let of_one = desk.commit_all(&claims(&one)).await;
        let of_many = claims(&many).into_iter().enumerate().map(async |(n, write)| {
            let (store, (neighbour, _)) =
                (desk.another(), first_claim(&format!("{n} {round}"), "first"));
            let (mine, its) =
                tokio::join!(store.commit(&write, &[]), store.commit(&neighbour, &[]));
            assert_eq!(its.unwrap(), Commit::Applied);
            mine.unwrap()
        });
        for all in [of_one, join_all(of_many).await] {
            let won = all.iter().filter(|commit| **commit == Commit::Applied).count();
            assert_eq!(won, 1, "round {round}");
            let winner = all.iter().position(|commit| *commit == Commit::Applied).unwrap();
            for commit in all.iter().filter(|commit| **commit != Commit::Applied) {
                let Commit::Conflict(Some(record)) = commit else { panic!("{commit:?}") };
                assert_eq!(record.claim_id.as_str(), format!("c {winner}"));
            }
        }
    }
}

async fn writes_of_one_record_keep_their_order(desk: Desk) {
    let (claim, held) = first_claim("k", "first");
    let (other, _) = first_claim("other", "first");
    let all = desk.commit_all(&[claim, done(&held), other]).await;
    assert_eq!(all, vec![Commit::Applied; 3]);
    assert_eq!(desk.status(&held).await, Status::Completed);
}

async fn a_write_sent_twice_knows_itself_again(desk: Desk) {
    let held = desk.claimed(&["a", "b", "c"]).await;
    let ends: Vec<_> = held.iter().map(done).collect();
    assert_eq!(desk.commit_all(&ends).await, vec![Commit::Applied; 3]);
    for (write, commit) in ends.iter().zip(desk.commit_all(&ends).await) {
        let Commit::Conflict(current) = commit else { panic!("{commit:?}") };
        assert_eq!(resolve_conflict(write, current.as_deref()), Conflict::Applied);
    }
}

async fn a_throttled_statement_goes_alone_and_the_others_have_landed(desk: Desk) {
    for (n, code) in ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"]
        .into_iter()
        .enumerate()
    {
        let (claims, held): (Vec<_>, Vec<_>) =
            (0..5).map(|k| first_claim(&format!("{n} {k}"), "first")).unzip();
        desk.wire.refuses("BatchExecuteStatement", Some(held[2].id.as_str()), code);
        assert_eq!(desk.commit_all(&claims).await, vec![Commit::Applied; 5]);
        assert_eq!(desk.wire.asked(), [asked("BatchExecuteStatement", 5), asked("PutItem", 1)]);
        let ends: Vec<_> = held.iter().map(done).collect();
        assert_eq!(desk.commit_all(&ends).await, vec![Commit::Applied; 5]);
        assert_eq!(desk.wire.asked(), [asked("BatchExecuteStatement", 5), asked("UpdateItem", 1)]);
    }
}

async fn a_key_left_unread_is_told_by_its_own_write(desk: Desk) {
    let held = desk.claimed(&["a", "b", "c"]).await;
    desk.wire.refuses("BatchGetItem", Some(held[1].id.as_str()), "unprocessed");
    let again = ["a", "b", "c"].map(|key| first_claim(key, "second").0);
    for (held, commit) in held.iter().zip(desk.commit_all(&again).await) {
        let Commit::Conflict(Some(record)) = commit else { panic!("{commit:?}") };
        assert_eq!((&record.id, &record.claim_id), (&held.id, &held.claim_id));
    }
    let expected =
        [asked("BatchExecuteStatement", 3), asked("BatchGetItem", 3), asked("PutItem", 1)];
    assert_eq!(desk.wire.asked(), expected);
}

async fn a_heavy_or_oversized_one_goes_alone_and_harms_nobody(desk: Desk) {
    let held = desk.claimed(&["heavy", "oversized", "light", "also light"]).await;
    let output = |at: usize, bytes| {
        let text = Output::Stored("x".repeat(bytes));
        complete(&held[at], text, Retention::default(), NOW).0
    };
    let ends = [output(0, 100_000), output(1, 500_000), output(2, 10), output(3, 10)];
    let all = join_all(ends.iter().map(|write| desk.store.commit(write, &[]))).await;
    let kinds: Vec<_> =
        all.into_iter().map(|commit| commit.map_err(|error| error.kind())).collect();
    let refused = Err(ErrorKind::StoreRefused);
    assert_eq!(kinds, [Ok(Commit::Applied), refused, Ok(Commit::Applied), Ok(Commit::Applied)]);
    let mut requests = desk.wire.asked();
    requests.sort();
    assert_eq!(
        requests,
        [asked("BatchExecuteStatement", 2), asked("UpdateItem", 1), asked("UpdateItem", 1)]
    );
}

async fn who_leaves_does_not_land_and_the_others_do(desk: Desk) {
    let (claims, held): (Vec<_>, Vec<_>) =
        (0..6).map(|n| first_claim(&format!("k {n}"), "first")).unzip();
    let mut all: Vec<_> = claims.iter().map(|write| desk.store.commit(write, &[])).collect();
    for commit in &mut all {
        assert!(poll_immediate(commit).await.is_none());
    }
    // The first among them, who would have sent it.
    drop(all.drain(..2));
    for commit in join_all(all).await {
        assert_eq!(commit.unwrap(), Commit::Applied);
    }
    assert_eq!(desk.wire.asked(), [asked("BatchExecuteStatement", 4)]);
    for left in &held[..2] {
        assert_eq!(desk.store.load(&left.id).await.unwrap(), None);
    }
}

/// What is not permitted, and what an endpoint does not know.
async fn without_batches_each_is_written_by_itself_and_that_is_said_once(desk: Desk) {
    let said = Said::default();
    let _said = tracing::subscriber::set_default(
        tracing_subscriber::fmt().with_writer(said.clone()).with_ansi(false).finish(),
    );
    for (code, record) in [
        ("AccessDeniedException", false),
        ("UnknownOperationException", false),
        ("AccessDenied", true),
    ] {
        let (claims, held): (Vec<_>, Vec<_>) =
            (0..4).map(|n| first_claim(&format!("{code} {n}"), "first")).unzip();
        let record = record.then(|| held[1].id.as_str());
        desk.wire.refuses("BatchExecuteStatement", record, code);
        let store = desk.another();
        let commits = async |writes: &[ConditionalWrite]| {
            let all = join_all(writes.iter().map(|write| store.commit(write, &[]))).await;
            all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(commits(&claims).await, vec![Commit::Applied; 4], "{code}");
        let requests = desk.wire.asked();
        assert_eq!(requests[0], asked("BatchExecuteStatement", 4));
        let alone = if record.is_some() { 1 } else { 4 };
        assert_eq!(requests[1..], vec![asked("PutItem", 1); alone]);
        // From now on no batch is tried.
        let ends: Vec<_> = held.iter().map(done).collect();
        assert_eq!(commits(&ends).await, vec![Commit::Applied; 4], "{code}");
        assert_eq!(desk.wire.asked(), vec![asked("UpdateItem", 1); 4]);
        let said = said.take();
        assert_eq!(said.matches("WARN").count(), 1, "{code}: {said}");
        assert!(said.contains("dynamodb:PartiQLInsert") && said.contains(code), "{said}");
        desk.wire.heals();
    }
}

async fn without_batched_reads_a_duplicate_is_told_by_its_own_write(desk: Desk) {
    let held = desk.claimed(&["a", "b"]).await;
    desk.wire.refuses("BatchGetItem", None, "AccessDeniedException");
    for batched_reads in [1, 0] {
        let again = ["a", "b"].map(|key| first_claim(key, "second").0);
        for (held, commit) in held.iter().zip(desk.commit_all(&again).await) {
            let Commit::Conflict(Some(record)) = commit else { panic!("{commit:?}") };
            assert_eq!((&record.id, &record.claim_id), (&held.id, &held.claim_id));
        }
        let requests = desk.wire.asked();
        let count = |of: &str| requests.iter().filter(|(operation, _)| operation == of).count();
        assert_eq!((count("BatchGetItem"), count("PutItem")), (batched_reads, 2), "{requests:?}");
    }
}

/// What was logged.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Each check on both.
macro_rules! on_both {
    ($($check:ident),+ $(,)?) => {
        mod ministack {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::Desk::ministack().await).await;
            })+
        }

        mod on_dynoxide {
            $(#[tokio::test]
            async fn $check() {
                super::$check(super::Desk::dynoxide().await).await;
            })+
        }
    };
}

on_both![
    fifty_keys_are_two_requests_and_so_are_their_completions,
    each_of_a_group_has_its_own_outcome,
    of_fifty_claimers_of_one_key_one_wins,
    writes_of_one_record_keep_their_order,
    a_write_sent_twice_knows_itself_again,
    a_throttled_statement_goes_alone_and_the_others_have_landed,
    a_key_left_unread_is_told_by_its_own_write,
    a_heavy_or_oversized_one_goes_alone_and_harms_nobody,
    who_leaves_does_not_land_and_the_others_do,
    without_batches_each_is_written_by_itself_and_that_is_said_once,
    without_batched_reads_a_duplicate_is_told_by_its_own_write,
];
