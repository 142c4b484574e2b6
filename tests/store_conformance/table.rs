//! Which check runs on which store, by what the store says it can. Each says what it did in a line of
//! its own, of which tests/run.py makes the conformance table.

use std::sync::Arc;

use onlyonce::store::{Capabilities, Store};

use crate::suite;

type Shared = Arc<dyn Store>;

/// A check that every store must pass.
pub async fn ran(on: &str, store: Shared, check: impl AsyncFnOnce(Shared)) {
    let can = store.capabilities();
    check(store).await;
    say(on, &can, "passed");
}

/// A check of rows. A store that has none must refuse them instead.
pub async fn ran_if_rows(on: &str, store: Shared, check: impl AsyncFnOnce(Shared)) {
    let can = store.capabilities();
    if can.rows {
        check(store).await;
        say(on, &can, "passed");
    } else {
        suite::rows_are_refused_by_name(store).await;
        say(on, &can, "refused");
    }
}

/// After the check: one that failed says nothing.
fn say(on: &str, can: &Capabilities, how: &str) {
    let native = if can.native.is_empty() { "none".to_owned() } else { can.native.join(",") };
    let yes = |it| if it { "yes" } else { "no" };
    let (rows, outbox) = (yes(can.rows), yes(can.outbox.is_some()));
    println!("conformance: {on} {how} rows={rows} native={native} outbox={outbox}");
}
