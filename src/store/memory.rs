//! Records in this process, for tests and for trying things out. Nothing survives it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{Columns, Commit, Cursor, Page, RowValue, RowWrite, StagedWrite, Store};
use crate::error::{Error, ErrorKind};
use crate::protocol::{ConditionalWrite, Record, RecordId, Status};

/// A store in memory. Stages [`RowWrite`]s.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

type Rows = BTreeMap<(String, Columns), Columns>;

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
        let mut changed = Vec::new();
        for (index, staged) in staged.iter().enumerate() {
            let StagedWrite::Row(row) = staged else {
                continue;
            };
            match apply_row(&state.rows, row) {
                Some(change) => changed.push(change),
                None => return Ok(Commit::Refused { index }),
            }
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
        let next = records
            .last()
            .filter(|_| is_more)
            .map(|last| Cursor { updated_at: last.updated_at, id: last.id.clone() });
        Ok(Page { records, next })
    }

    fn accepts(&self, staged: &StagedWrite) -> Result<(), Error> {
        match staged {
            StagedWrite::Row(_) => Ok(()),
            StagedWrite::Native { form, .. } => Err(Error::new(ErrorKind::Staged, "stage")
                .with_detail(format!("the memory store takes RowWrite, not {form}"))),
        }
    }
}

type RowChange = ((String, Columns), Option<Columns>);

/// The row after the write; `None` if its condition does not hold.
fn apply_row(rows: &Rows, write: &RowWrite) -> Option<RowChange> {
    let at = |table: &String, key: &Columns| (table.clone(), key.clone());
    match write {
        RowWrite::PutIfAbsent { table, key, values } => {
            let at = at(table, key);
            (!rows.contains_key(&at)).then(|| (at, Some(values.clone())))
        }
        RowWrite::Add { table, key, add, floor } => {
            let at = at(table, key);
            let mut columns = rows.get(&at).cloned().unwrap_or_default();
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
            let row = rows.get(&at)?;
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
