//! Portable rows as SQL.

use std::collections::BTreeMap;

use super::draft::{Draft, Drafted, quote};
use crate::error::Error;
use crate::store::{Columns, RowWrite};

/// What a database needs to be told.
#[derive(Clone, Copy)]
pub(in crate::store) struct Dialect {
    /// Others write while a transaction is open. What makes a row one of its key is its unique
    /// constraint then, which must be there.
    pub is_shared: bool,
    /// It would make a number of text, and a rounded one of a sum past 64 bits.
    pub is_loosely_typed: bool,
}

/// The row as statements. They run until one has changed something; between them they must have
/// changed one row.
pub(in crate::store) fn row_sql(row: &RowWrite, dialect: Dialect) -> Result<Vec<Drafted>, Error> {
    row.check()?;
    Ok(match row {
        RowWrite::PutIfAbsent { table, key, values } => {
            vec![insert_if_absent(table, key, values, dialect)]
        }
        RowWrite::Add { table, key, add, floor } => {
            let update = update_sums(table, key, add, floor, dialect);
            // If there is no row, every column counts as 0.
            let sum = |column: &String| add.get(column).copied().unwrap_or(0);
            if floor.iter().any(|(column, least)| sum(column) < *least) {
                return Ok(vec![update]);
            }
            let sums = add.iter().map(|(name, by)| (name.clone(), (*by).into())).collect();
            let insert = insert_if_absent(table, key, &sums, dialect);
            // Another may have made the row in between.
            let once_more = dialect.is_shared.then(|| update.clone());
            [update, insert].into_iter().chain(once_more).collect()
        }
        RowWrite::DeleteIf { table, key, values } => {
            let mut draft = Draft::default();
            let shown = [draft.all_equal(key), draft.all_equal(values)].concat().join(" AND ");
            vec![draft.done(format!("DELETE FROM {} WHERE {shown}", quote(table)))]
        }
    })
}

/// Looks for the row itself: where nobody else writes the table may have no unique constraint on
/// these columns, and where others do a row that is there needs to meet no constraint but that.
fn insert_if_absent(table: &str, key: &Columns, values: &Columns, dialect: Dialect) -> Drafted {
    let mut draft = Draft::default();
    let (names, places): (Vec<_>, Vec<_>) = key
        .iter()
        .chain(values)
        .map(|(name, value)| (quote(name), draft.value(value.clone())))
        .unzip();
    let same = draft.all_equal(key).join(" AND ");
    let unique: Vec<_> = key.keys().map(|name| quote(name)).collect();
    let unique = match dialect.is_shared {
        true => format!(" ON CONFLICT ({}) DO NOTHING", unique.join(", ")),
        false => String::new(),
    };
    let (table, names, places) = (quote(table), names.join(", "), places.join(", "));
    draft.done(format!(
        "INSERT INTO {table} ({names}) SELECT {places} \
         WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {same}){unique}"
    ))
}

fn update_sums(
    table: &str,
    key: &Columns,
    add: &BTreeMap<String, i64>,
    floor: &BTreeMap<String, i64>,
    dialect: Dialect,
) -> Drafted {
    let mut draft = Draft::default();
    let mut conditions = draft.all_equal(key);
    let mut sets = Vec::new();
    for (column, by) in add {
        let name = quote(column);
        let sum = format!("COALESCE({name}, 0) + {}", draft.value(*by));
        if dialect.is_loosely_typed {
            conditions.push(format!("typeof(COALESCE({name}, 0)) = 'integer'"));
            conditions.push(format!("typeof({sum}) = 'integer'"));
        }
        sets.push(format!("{name} = {sum}"));
    }
    for (column, least) in floor {
        let by = draft.value(add.get(column).copied().unwrap_or(0));
        let least = draft.value(*least);
        conditions.push(format!("COALESCE({}, 0) + {by} >= {least}", quote(column)));
    }
    let (sets, conditions) = (sets.join(", "), conditions.join(" AND "));
    draft.done(format!("UPDATE {} SET {sets} WHERE {conditions}", quote(table)))
}
