//! What every store must do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onlyonce::error::ErrorKind;
use onlyonce::protocol::{
    Change, Claim, Conflict, EpochSeconds, Failure, Field, Held, Output, Record, Retention,
    RetryPolicy, Rev, Status, claim, complete, fail, resolve_conflict,
};
use onlyonce::store::{Columns, Commit, RowValue, RowWrite, StagedWrite, Store};

use crate::records::{NOW, SECOND, effects, first_claim, request, sent};

type Shared = Arc<dyn Store>;

async fn claimed(store: &Shared, key: &str) -> Held {
    let (write, held) = first_claim(key, "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    held
}

async fn loaded(store: &Shared, held: &Held) -> Record {
    store.load(&held.id).await.unwrap().unwrap()
}

fn found(commit: Commit) -> Record {
    match commit {
        Commit::Conflict(Some(record)) => *record,
        other => panic!("no conflict with a record: {other:?}"),
    }
}

pub async fn a_record_is_made_once(store: Shared) {
    let held = claimed(&store, "k").await;
    let (second, _) = first_claim("k", "second");
    let conflict = store.commit(&second, &[]).await.unwrap();
    let record = loaded(&store, &held).await;
    assert_eq!(found(conflict), record);
    assert_eq!(record.claim_id, held.claim_id);
}

pub async fn an_update_lands_only_at_its_claim_and_revision(store: Shared) {
    let held = claimed(&store, "k").await;
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let foreign = Held { claim_id: request("k", "foreign").claim_id, ..held.clone() };
    let old = Held { rev: Rev(0), ..held.clone() };
    for wrong in [&foreign, &old] {
        let (write, _) = complete(wrong, Output::Omitted, Retention::Forever, NOW);
        let current = found(store.commit(&write, &[]).await.unwrap());
        assert_eq!(current.status, Status::Claimed);
        assert_eq!(resolve_conflict(&write, Some(&current)), Conflict::LostLease);
    }
    assert_eq!(store.commit(&done, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(loaded(&store, &held).await.status, Status::Completed);
}

pub async fn an_update_of_nothing_is_a_conflict_with_nothing(store: Shared) {
    let (_, held) = first_claim("never", "first");
    let (write, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Conflict(None));
    assert_eq!(store.load(&held.id).await.unwrap(), None);
}

/// Sends all writes at once and answers how many landed.
async fn race(store: &Shared, writes: Vec<onlyonce::protocol::ConditionalWrite>) -> usize {
    let tasks: Vec<_> = writes
        .into_iter()
        .map(|write| {
            let store = store.clone();
            onlyonce::runtime::spawn(async move { store.commit(&write, &[]).await.unwrap() })
        })
        .collect();
    let mut landed = 0;
    for mut task in tasks {
        landed += usize::from(task.join().await.unwrap() == Commit::Applied);
    }
    landed
}

/// How many race, and how often.
const RACERS: usize = 50;
const ROUNDS: usize = 20;

pub async fn of_many_racing_claims_one_wins(store: Shared) {
    for round in 0..ROUNDS {
        let key = format!("k {round}");
        let claims = (0..RACERS).map(|n| first_claim(&key, &format!("claim-{n}")).0);
        assert_eq!(race(&store, claims.collect()).await, 1, "round {round}");
    }
}

pub async fn of_many_racing_take_overs_one_wins(store: Shared) {
    for round in 0..ROUNDS {
        let key = format!("k {round}");
        let held = claimed(&store, &key).await;
        let record = loaded(&store, &held).await;
        let over = NOW + SECOND * 36;
        let steal = |n| {
            let thief = request(&key, &format!("thief-{n}"));
            match claim(Some(record.clone()), &thief, over) {
                Claim::Take { write, .. } => *write,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(race(&store, (0..RACERS).map(steal).collect()).await, 1, "round {round}");
        assert_eq!(loaded(&store, &held).await.token.0, 2);
    }
}

pub async fn every_field_is_read_back_as_written(store: Shared) {
    let (mut write, held) = first_claim("ключ", "first");
    let Change::Create(record) = &mut write.change else { panic!("not a creation") };
    record.status = Status::Failed;
    record.not_before = Some(NOW + SECOND);
    record.unrecorded_since = Some(NOW);
    record.effects = effects();
    record.output = Some(Output::Stored("{\"a\":[1,\"é\"]}".to_owned()));
    record.error = Some("no \u{1F4A3}".to_owned());
    record.quarantine = sent();
    record.expires_at = Some(EpochSeconds::from_secs(1_950_000_000));
    let written = Record::clone(record);
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(loaded(&store, &held).await, written);
}

pub async fn an_update_leaves_what_it_does_not_name(store: Shared) {
    let held = claimed(&store, "k").await;
    let before = loaded(&store, &held).await;
    let held = Held { effects: effects(), ..held };
    let policy = (&RetryPolicy::fixed(SECOND, 5), Retention::default());
    let (write, _) = fail(&held, &Failure::Retryable, "no".to_owned(), policy, NOW, 0.0);
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    let released = loaded(&store, &held).await;
    assert_eq!(released.fingerprint, before.fingerprint);
    assert_eq!((released.key, released.effects), (before.key, effects()));
    assert_eq!(released.expires_at, None, "an open intent never expires");

    // And removes what it says to remove.
    let due = NOW + SECOND * 2;
    let record = loaded(&store, &held).await;
    let Claim::Take { write, .. } = claim(Some(record), &request("k", "second"), due) else {
        panic!("due")
    };
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    let taken = loaded(&store, &held).await;
    assert_eq!((taken.not_before, taken.status), (None, Status::Claimed));
    assert_eq!(taken.error.as_deref(), Some("no"));
}

pub async fn a_claim_and_its_end_are_one_write(store: Shared) {
    let done = Output::Stored("7".to_owned());
    let end = |held: &Held| complete(held, done.clone(), Retention::default(), NOW).0;
    let (write, held) = first_claim("k", "first");
    let at_once = write.then(&end(&held));
    assert_eq!(store.commit(&at_once, &[]).await.unwrap(), Commit::Applied);
    assert_eq!(loaded(&store, &held).await, at_once.apply(None).unwrap());

    let (write, held) = first_claim("again", "first");
    let policy = (&RetryPolicy::fixed(SECOND, 5), Retention::default());
    let (failed, _) = fail(&held, &Failure::Retryable, "no".to_owned(), policy, NOW, 0.0);
    assert_eq!(store.commit(&write.then(&failed), &[]).await.unwrap(), Commit::Applied);
    let released = loaded(&store, &held).await;
    let due = NOW + SECOND * 2;
    let Claim::Take { write, held } = claim(Some(released.clone()), &request("again", "2"), due)
    else {
        panic!("due")
    };
    let at_once = write.then(&end(&held));
    assert_eq!(store.commit(&at_once, &[]).await.unwrap(), Commit::Applied);
    let completed = loaded(&store, &held).await;
    assert_eq!(Some(&completed), at_once.apply(Some(&released)).as_ref());
    assert_eq!((completed.status, completed.rev.0), (Status::Completed, 2));
}

pub async fn falsy_outputs_are_kept(store: Shared) {
    for json in ["0", "false", "\"\"", "[]", "null", ""] {
        let held = claimed(&store, &format!("output {json}")).await;
        let output = Output::Stored(json.to_owned());
        let (write, _) = complete(&held, output.clone(), Retention::Forever, NOW);
        assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
        assert_eq!(loaded(&store, &held).await.output, Some(output));
    }
}

pub async fn a_repeated_write_is_known_by_what_is_there(store: Shared) {
    let held = claimed(&store, "k").await;
    let output = Output::Stored("1".to_owned());
    let (write, _) = complete(&held, output, Retention::default(), NOW);
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    let current = found(store.commit(&write, &[]).await.unwrap());
    assert_eq!(resolve_conflict(&write, Some(&current)), Conflict::Applied);
}

pub async fn a_stale_take_over_does_not_land_on_a_completion(store: Shared) {
    let held = claimed(&store, "k").await;
    let snapshot = loaded(&store, &held).await;
    let (done, _) = complete(&held, Output::Omitted, Retention::default(), NOW);
    assert_eq!(store.commit(&done, &[]).await.unwrap(), Commit::Applied);

    let over = NOW + SECOND * 36;
    let Claim::Take { write, .. } = claim(Some(snapshot), &request("k", "thief"), over) else {
        panic!("the snapshot is free")
    };
    let current = found(store.commit(&write, &[]).await.unwrap());
    assert_eq!(current.status, Status::Completed);
    assert!(matches!(claim(Some(current), &request("k", "thief"), over), Claim::Replay(_)));
}

/// Rows of one test in the table `stock`, which all tests share.
struct Shop(String);

impl Shop {
    fn new() -> Self {
        Self(format!("{:016x}", fastrand::Rng::new().u64(..)))
    }

    fn key(&self, sku: &str) -> Columns {
        Columns::from([("sku".to_owned(), RowValue::from(format!("{}-{sku}", self.0)))])
    }

    fn add(&self, sku: &str, by: i64) -> StagedWrite {
        let column = "available".to_owned();
        RowWrite::Add {
            table: "stock".to_owned(),
            key: self.key(sku),
            add: BTreeMap::from([(column.clone(), by)]),
            floor: BTreeMap::from([(column, 0)]),
        }
        .into()
    }

    fn put(&self, sku: &str, name: &str) -> StagedWrite {
        let values = Columns::from([
            ("name".to_owned(), RowValue::from(name)),
            ("size".to_owned(), RowValue::from(3)),
            ("sold".to_owned(), RowValue::from(false)),
        ]);
        RowWrite::PutIfAbsent { table: "stock".to_owned(), key: self.key(sku), values }.into()
    }

    fn delete(&self, sku: &str, name: &str) -> StagedWrite {
        let values = Columns::from([("name".to_owned(), RowValue::from(name))]);
        RowWrite::DeleteIf { table: "stock".to_owned(), key: self.key(sku), values }.into()
    }
}

/// Completes a new key with staged rows; a conflict of `key` itself is not expected.
async fn complete_with(store: &Shared, name: &str, staged: &[StagedWrite]) -> Commit {
    let held = claimed(store, name).await;
    let (write, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let commit = store.commit(&write, staged).await.unwrap();
    let status = loaded(store, &held).await.status;
    let is_done = commit == Commit::Applied;
    assert_eq!(status == Status::Completed, is_done, "record and rows go together");
    commit
}

pub async fn staged_rows_land_with_the_record_or_not_at_all(store: Shared) {
    let shop = Shop::new();
    let both = [shop.add("a", 5), shop.put("b", "cup")];
    assert_eq!(complete_with(&store, "one", &both).await, Commit::Applied);
    // The second is refused, so the first does not land either.
    let commit = complete_with(&store, "two", &[shop.add("a", -5), shop.put("b", "mug")]).await;
    assert_eq!(commit, Commit::Refused { index: 1 });
    // All five are still there.
    assert_eq!(complete_with(&store, "three", &[shop.add("a", -5)]).await, Commit::Applied);
    let commit = complete_with(&store, "four", &[shop.add("a", -1)]).await;
    assert_eq!(commit, Commit::Refused { index: 0 });
}

pub async fn a_floor_refuses_and_names_the_row(store: Shared) {
    let shop = Shop::new();
    assert_eq!(complete_with(&store, "one", &[shop.add("a", 2)]).await, Commit::Applied);
    let commit = complete_with(&store, "two", &[shop.add("b", 1), shop.add("a", -3)]).await;
    assert_eq!(commit, Commit::Refused { index: 1 });
    let commit = complete_with(&store, "three", &[shop.add("none", -1)]).await;
    assert_eq!(commit, Commit::Refused { index: 0 }, "a row that is not there has nothing");
}

pub async fn a_duplicates_staged_rows_do_not_land(store: Shared) {
    let shop = Shop::new();
    let held = claimed(&store, "k").await;
    let (write, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let staged = [shop.add("a", 2)];
    assert_eq!(store.commit(&write, &staged).await.unwrap(), Commit::Applied);
    let again = found(store.commit(&write, &staged).await.unwrap());
    assert_eq!(resolve_conflict(&write, Some(&again)), Conflict::Applied);
    // Two were added once: two can be taken, a third cannot.
    assert_eq!(complete_with(&store, "two", &[shop.add("a", -2)]).await, Commit::Applied);
    let commit = complete_with(&store, "three", &[shop.add("a", -1)]).await;
    assert_eq!(commit, Commit::Refused { index: 0 });
}

pub async fn rows_are_deleted_only_as_they_were_seen(store: Shared) {
    let shop = Shop::new();
    let refused = Commit::Refused { index: 0 };
    assert_eq!(complete_with(&store, "none", &[shop.delete("a", "cup")]).await, refused);
    assert_eq!(complete_with(&store, "put", &[shop.put("a", "cup")]).await, Commit::Applied);
    assert_eq!(complete_with(&store, "other", &[shop.delete("a", "mug")]).await, refused);
    assert_eq!(complete_with(&store, "same", &[shop.delete("a", "cup")]).await, Commit::Applied);
    assert_eq!(complete_with(&store, "again", &[shop.put("a", "mug")]).await, Commit::Applied);
}

pub async fn parked_records_are_scanned_oldest_first_in_pages(store: Shared) {
    for n in [3u32, 1, 2] {
        let (mut write, _) = first_claim(&format!("failed {n}"), "first");
        let Change::Create(record) = &mut write.change else { panic!("not a creation") };
        Field::Status(Status::Failed).apply(record);
        Field::UpdatedAt(NOW + SECOND * n).apply(record);
        assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    }
    let held = claimed(&store, "running").await;
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let page = store.scan(Status::Failed, after, 2).await.unwrap();
        assert!(page.records.len() <= 2);
        keys.extend(page.records.into_iter().map(|record| record.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["failed 1", "failed 2", "failed 3"]);
    assert_eq!(store.scan(Status::Claimed, None, 9).await.unwrap().records, []);

    // A record leaves the index with its status.
    let policy = (&RetryPolicy::fixed(SECOND, 5), Retention::default());
    let (write, _) = fail(&held, &Failure::Retryable, String::new(), policy, NOW, 0.0);
    store.commit(&write, &[]).await.unwrap();
    assert_eq!(store.scan(Status::Released, None, 9).await.unwrap().records.len(), 1);
    let record = loaded(&store, &held).await;
    let due = NOW + SECOND * 2;
    let Claim::Take { write, .. } = claim(Some(record), &request("running", "second"), due) else {
        panic!("due")
    };
    store.commit(&write, &[]).await.unwrap();
    assert_eq!(store.scan(Status::Released, None, 9).await.unwrap().records, []);
}

pub async fn a_walk_meets_every_record(store: Shared) {
    let shop = Shop::new();
    for n in 0..7 {
        claimed(&store, &format!("running {n}")).await;
    }
    if store.capabilities().rows {
        assert_eq!(complete_with(&store, "done", &[shop.put("a", "cup")]).await, Commit::Applied);
    }
    let mut met = BTreeSet::new();
    let mut next = None;
    loop {
        let part = store.walk(next, 3).await.unwrap();
        met.extend(part.records.into_iter().map(|record| (record.key, record.status.as_str())));
        next = part.next;
        if next.is_none() {
            break;
        }
    }
    let done = store.capabilities().rows.then(|| ("done".to_owned(), Status::Completed.as_str()));
    let running = (0..7).map(|n| (format!("running {n}"), Status::Claimed.as_str()));
    assert_eq!(met, running.chain(done).collect());
}

pub async fn a_foreign_staged_form_is_refused_by_name(store: Shared) {
    let foreign = StagedWrite::Native { form: "SqlStatement", value: Box::new(()) };
    let error = store.accepts(&foreign).unwrap_err().to_string();
    let can = store.capabilities();
    let fits = if can.rows { "RowWrite" } else { can.native[0] };
    assert!(error.contains("SqlStatement") && error.contains(fits), "{error}");
    let held = claimed(&store, "k").await;
    let (write, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    assert!(store.commit(&write, &[foreign]).await.is_err());
    assert_eq!(loaded(&store, &held).await.status, Status::Claimed);
}

pub async fn a_row_that_no_store_could_write_is_refused_when_it_is_staged(store: Shared) {
    let table = || "stock".to_owned();
    let nowhere =
        RowWrite::PutIfAbsent { table: table(), key: Columns::new(), values: Columns::new() };
    let nothing = RowWrite::Add {
        table: table(),
        key: Shop::new().key("a"),
        add: BTreeMap::new(),
        floor: BTreeMap::new(),
    };
    for row in [nowhere, nothing] {
        let error = store.accepts(&row.into()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged, "{error}");
    }
}

/// What a store without rows does instead of each check of rows.
pub async fn rows_are_refused_by_name(store: Shared) {
    let shop = Shop::new();
    let held = claimed(&store, "k").await;
    let (write, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    for row in [shop.add("a", 1), shop.put("a", "cup"), shop.delete("a", "cup")] {
        let error = store.accepts(&row).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staged);
        assert!(error.to_string().contains("RowWrite"), "{error}");
        assert_eq!(store.commit(&write, &[row]).await.unwrap_err().kind(), ErrorKind::Staged);
    }
    assert_eq!(loaded(&store, &held).await.status, Status::Claimed);
}
