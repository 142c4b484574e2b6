//! Something to count, staged in whatever form a store takes.

use std::collections::BTreeMap;

use onlyonce::protocol::{Output, Retention, complete};
use onlyonce::store::{Columns, Commit, RowValue, RowWrite, StagedWrite, Store};

use crate::records::{NOW, first_claim};

/// Adds to what is counted under `name`; refused below 0.
pub fn add(store: &dyn Store, name: &str, by: i64) -> StagedWrite {
    if store.capabilities().rows {
        let column = || "available".to_owned();
        return RowWrite::Add {
            table: "stock".to_owned(),
            key: Columns::from([("sku".to_owned(), RowValue::from(name))]),
            add: BTreeMap::from([(column(), by)]),
            floor: BTreeMap::from([(column(), 0)]),
        }
        .into();
    }
    native(name, by)
}

#[cfg(feature = "redis")]
fn native(name: &str, by: i64) -> StagedWrite {
    let key = format!("stock:{name}");
    onlyonce::store::redis::RedisWrite::Add { key, by, floor: Some(0) }.into()
}

#[cfg(not(feature = "redis"))]
fn native(_: &str, _: i64) -> StagedWrite {
    panic!("this store stages nothing that can be counted")
}

/// How much there is: as often as one can be taken away, up to two.
pub async fn count(store: &dyn Store, name: &str) -> usize {
    for taken in 0..2 {
        let key = format!("counting {name} {taken}");
        let (write, held) = first_claim(&key, "counts");
        let done = write.then(&complete(&held, Output::Omitted, Retention::Forever, NOW).0);
        match store.commit(&done, &[add(store, name, -1)]).await.unwrap() {
            Commit::Applied => {}
            Commit::Refused { .. } => return taken,
            other => panic!("{name}: {other:?}"),
        }
    }
    2
}
