//! Whatever stands in a row: it is a record, or an error that names the column.

use fastrand::Rng;
use rusqlite::types::Value as Sql;
use rusqlite::{Connection, params_from_iter};

use crate::error::ErrorKind;
use crate::fuzz::fuzz_made;
use crate::store::sql::decode;

/// A record's columns.
fn fine() -> Vec<(&'static str, Sql)> {
    let text = |text: &str| Sql::Text(text.to_owned());
    let effects = "{\"a\":{\"state\":\"done\",\"generation\":1,\"first_sent\":5,\"result\":\"1\"}}";
    let numbers = ["v", "token", "rev", "attempt", "lease_until", "created_at", "updated_at"]
        .map(|name| (name, Sql::Integer(1)));
    let nothing = [
        "not_before",
        "unrecorded_since",
        "output_omitted",
        "expires_at",
        "output",
        "error",
        "quarantine",
        "message_id",
        "fingerprint",
    ]
    .map(|name| (name, Sql::Null));
    let texts = [
        ("pk", text(&"ab".repeat(32))),
        ("key", text("k")),
        ("job", text("j")),
        ("namespace", text("n")),
        ("status", text("claimed")),
        ("claim_id", text("c")),
        ("effects", text(effects)),
    ];
    numbers.into_iter().chain(nothing).chain(texts).collect()
}

fn value(rng: &mut Rng) -> Sql {
    let texts = [
        "",
        "claimed",
        "pending",
        "{}",
        "[]",
        "{\"a\":{}}",
        "{\"a\":{\"state\":\"done\"}}",
        "{\"a\":{\"state\":\"done\",\"generation\":-1,\"first_sent\":1}}",
        "\u{0}",
        "1",
    ];
    match rng.u8(0..6) {
        0 => Sql::Null,
        1 => Sql::Integer(rng.i64(..)),
        2 => Sql::Integer(rng.i64(-1..3)),
        3 => Sql::Real(rng.f64()),
        4 => Sql::Blob(vec![0xff, rng.u8(..)]),
        _ => Sql::Text(texts[rng.usize(..texts.len())].to_owned()),
    }
}

#[test]
fn a_row_is_a_record_or_an_error_that_names_the_column() {
    let connection = Connection::open_in_memory().unwrap();
    let names: Vec<_> = fine().iter().map(|(name, _)| format!("? AS {name}")).collect();
    let mut select = connection.prepare(&format!("SELECT {}", names.join(", "))).unwrap();
    fuzz_made("row of a file", |rng| {
        let mut columns = fine();
        for _ in 0..rng.usize(0..4) {
            let at = rng.usize(..columns.len());
            columns[at].1 = value(rng);
        }
        let values = columns.iter().map(|(_, value)| value.clone());
        let read = select.query_row(params_from_iter(values), |row| Ok(decode(row))).unwrap();
        if let Err(error) = read {
            let said = error.to_string();
            assert!(said.contains("column") || said.contains("version"), "{said}");
            assert_eq!(error.kind(), ErrorKind::Record);
        } else if columns == fine() {
            assert_eq!(read.unwrap().effects.len(), 1);
        }
    });
}
