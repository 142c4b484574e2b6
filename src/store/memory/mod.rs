//! Records in this process, for tests and for trying things out. Nothing survives it.

mod outbox;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{
    Capabilities, Columns, Commit, Cursor, Outbox, Page, RowValue, RowWrite, StagedWrite, Store,
    Walk,
};
use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};
use crate::store::outbox::OUTBOX;

/// A store in memory. Stages [`RowWrite`]s.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

type RowAt = (String, Columns);
type Rows = BTreeMap<RowAt, Columns>;
type Changed = BTreeMap<RowAt, Option<Columns>>;

#[derive(Debug, Default)]
struct State {
    records: HashMap<RecordId, Record>,
    rows: Rows,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The columns of the row with this key beside the key itself.
    pub fn row(&self, table: &str, key: &Columns) -> Option<Columns> {
        self.state().rows.get(&(table.to_owned(), key.clone())).cloned()
    }

    /// A panic elsewhere cannot leave a half-made state: every change is made by whole values.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load(&self, id: &RecordId) -> Result<Option<Record>, Error> {
        Ok(self.state().records.get(id).cloned())
    }

    async fn commit(
        &self,
        write: &ConditionalWrite,
        staged: &[StagedWrite],
    ) -> Result<Commit, Error> {
        staged.iter().try_for_each(|staged| self.accepts(staged))?;
        let mut state = self.state();
        let current = state.records.get(&write.id);
        let Some(record) = write.apply(current) else {
            return Ok(Commit::Conflict(current.cloned().map(Box::new)));
        };
        let mut changed = Changed::new();
        for (index, staged) in staged.iter().enumerate() {
            let StagedWrite::Row(row) = staged else {
                continue;
            };
            // Two writes of one row come one after another.
            let seen = |at: &RowAt| match changed.get(at) {
                Some(columns) => columns.as_ref(),
                None => state.rows.get(at),
            };
            match apply_row(seen, row) {
                Some((at, columns)) => changed.insert(at, columns),
                None => return Ok(Commit::Refused { index }),
            };
        }
        for (key, columns) in changed {
            match columns {
                Some(columns) => state.rows.insert(key, columns),
                None => state.rows.remove(&key),
            };
        }
        state.records.insert(write.id.clone(), record);
        Ok(Commit::Applied)
    }

    async fn scan(
        &self,
        parked: Status,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let state = self.state();
        let place = |record: &Record| (record.updated_at, record.id.clone());
        let after = after.map(|cursor| (cursor.updated_at, cursor.id));
        let mut records: Vec<_> = state
            .records
            .values()
            .filter(|record| record.status == parked && parked.is_parked())
            .filter(|record| after.as_ref().is_none_or(|after| place(record) > *after))
            .cloned()
            .collect();
        records.sort_by_key(place);
        let is_more = records.len() > limit;
        records.truncate(limit);
        Ok(Page::of(records, is_more))
    }

    async fn walk(&self, after: Option<String>, limit: usize) -> Result<Walk, Error> {
        let state = self.state();
        let mut records: Vec<_> = state
            .records
            .values()
            .filter(|record| after.as_ref().is_none_or(|after| record.id.as_str() > after.as_str()))
            .cloned()
            .collect();
        records.sort_by(|one, other| one.id.cmp(&other.id));
        let is_more = records.len() > limit;
        records.truncate(limit);
        Ok(Walk::of(records, is_more))
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        match staged {
            StagedWrite::Row(row) => row.check(),
            StagedWrite::Native { form, .. } => Err(Error::new(ErrorKind::Staged, "stage")
                .with_detail(format!("the memory store takes RowWrite, not {form}"))),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { rows: true, native: &[], outbox: Some(OUTBOX.to_owned()) }
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        Some(self)
    }
}

/// The row after the write; `None` if its condition does not hold.
fn apply_row<'a>(
    seen: impl Fn(&RowAt) -> Option<&'a Columns>,
    write: &RowWrite,
) -> Option<(RowAt, Option<Columns>)> {
    let at = |table: &String, key: &Columns| (table.clone(), key.clone());
    match write {
        RowWrite::PutIfAbsent { table, key, values } => {
            let at = at(table, key);
            seen(&at).is_none().then(|| (at, Some(values.clone())))
        }
        RowWrite::Add { table, key, add, floor } => {
            let at = at(table, key);
            let mut columns = seen(&at).cloned().unwrap_or_default();
            for (column, by) in add {
                let sum = number(&columns, column)?.checked_add(*by)?;
                columns.insert(column.clone(), RowValue::Integer(sum));
            }
            let holds = floor.iter().all(|(column, least)| {
                number(&columns, column).is_some_and(|number| number >= *least)
            });
            holds.then_some((at, Some(columns)))
        }
        RowWrite::DeleteIf { table, key, values } => {
            let at = at(table, key);
            let row = seen(&at)?;
            values.iter().all(|(name, value)| row.get(name) == Some(value)).then_some((at, None))
        }
    }
}

fn number(columns: &Columns, column: &str) -> Option<i64> {
    match columns.get(column) {
        None => Some(0),
        Some(RowValue::Integer(number)) => Some(*number),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        ClaimId, IdempotencyKey, Imported, Output, Retention, Timestamp, import,
    };

    #[tokio::test]
    async fn two_writes_of_one_row_come_one_after_another() {
        let key = Columns::from([("sku".to_owned(), RowValue::from("cup"))]);
        let add = |by| {
            let (add, floor) = ([("left".to_owned(), by)].into(), [("left".to_owned(), 0)].into());
            StagedWrite::from(RowWrite::Add {
                table: "stock".to_owned(),
                key: key.clone(),
                add,
                floor,
            })
        };
        let store = MemoryStore::new();
        let commit = async |key: &str, staged: &[StagedWrite]| {
            let done = Imported {
                namespace: "default".to_owned(),
                job: "reserve".to_owned(),
                key: IdempotencyKey::new(key).unwrap(),
                fingerprint: None,
                output: Output::Omitted,
                retention: Retention::Forever,
            };
            let write = import(done, ClaimId::new("one"), Timestamp::from_millis(1));
            store.commit(&write, staged).await.unwrap()
        };
        assert_eq!(commit("a", &[add(2), add(1)]).await, Commit::Applied);
        let left = store.row("stock", &key).unwrap();
        assert_eq!(left, Columns::from([("left".to_owned(), RowValue::from(3))]));
        assert_eq!(commit("b", &[add(-2), add(-2)]).await, Commit::Refused { index: 1 });
    }
}
