//! The tables: making them, and seeing whether they are there.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::fault::fault;
use crate::error::{Error, ErrorKind};

/// Each brings the tables from the version before to its own, and says so in `onlyonce_schema`.
/// What was released is never changed again.
pub(super) const MIGRATIONS: [(i32, &str); 1] = [(1, include_str!("schema.sql"))];

/// What those that make the tables at once wait for: "onlyonce" as a number.
const TURN: i64 = 0x6f6e_6c79_6f6e_6365;

/// Makes the tables, or what they lack; false if they lack nothing.
pub(super) async fn make(client: &mut Client) -> Result<bool, Error> {
    let fault = |error| fault("setup", error);
    encoding(client).await?;
    let transaction = client.transaction().await.map_err(fault)?;
    let turn =
        transaction.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&TURN, Type::INT8)]).await;
    turn.map_err(fault)?;
    let version = version(transaction.client()).await?.unwrap_or(0);
    let missing = MIGRATIONS.iter().filter(|(number, _)| *number > version);
    let mut made = false;
    for (_, sql) in missing {
        transaction.batch_execute(sql).await.map_err(fault)?;
        made = true;
    }
    transaction.commit().await.map_err(fault)?;
    Ok(made)
}

/// An error unless the tables are there, with all that this version knows.
pub(super) async fn look(client: &Client) -> Result<(), Error> {
    encoding(client).await?;
    let refused =
        |detail: &str| Err(Error::new(ErrorKind::StoreRefused, "open").with_detail(detail));
    let [.., (newest, _)] = MIGRATIONS;
    match version(client).await? {
        None => refused(
            "there are no records here; make them with `onlyonce setup`, or correct the URL (its \
             database, or the search_path)",
        ),
        Some(version) if version < newest => {
            refused("the tables are of an earlier version; bring them up with `onlyonce setup`")
        }
        // What a later version added is left as it is.
        Some(_) => Ok(()),
    }
}

/// Of the tables; `None` if there are none.
async fn version(client: &Client) -> Result<Option<i32>, Error> {
    let fault = |error| fault("open", error);
    let found = "SELECT to_regclass('onlyonce_schema') IS NOT NULL";
    let found: bool =
        client.query_typed_one(found, &[]).await.and_then(|row| row.try_get(0)).map_err(fault)?;
    if !found {
        return Ok(None);
    }
    let newest = client.query_typed_one("SELECT max(version) FROM onlyonce_schema", &[]).await;
    newest.and_then(|row| row.try_get(0)).map_err(fault)
}

/// Any text must find its place.
async fn encoding(client: &Client) -> Result<(), Error> {
    let shown = client.query_typed_one("SELECT current_setting('server_encoding')", &[]).await;
    let shown: Result<String, _> = shown.and_then(|row| row.try_get(0));
    match shown.map_err(|error| fault("open", error))?.as_str() {
        "UTF8" => Ok(()),
        other => Err(Error::new(ErrorKind::StoreRefused, "open").with_detail(format!(
            "the database's encoding is {other}; make one with ENCODING 'UTF8'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_for_people_is_what_setup_does() {
        // Not part of the package.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/infra/postgres.sql");
        let shown = std::fs::read_to_string(path).unwrap();
        let made: Vec<_> = MIGRATIONS.iter().map(|(_, sql)| *sql).collect();
        let made = format!("BEGIN;\n\n{}\nCOMMIT;\n", made.join("\n"));
        assert!(shown.contains(&made), "bring infra/postgres.sql in line with src/store/postgres");
        assert!(MIGRATIONS.iter().map(|(number, _)| *number).eq(1..=MIGRATIONS.len() as i32));
    }
}
