//! Whatever stands in a hash: it is a record, or an error that names the field.

use super::*;
use crate::fuzz::fuzz_made;

/// A record's fields.
fn fine() -> Hash {
    let effects = "{\"a\":{\"state\":\"done\",\"generation\":1,\"first_sent\":5,\"result\":\"1\"}}";
    let numbers = ["v", "token", "rev", "attempt", "lease_until", "created_at", "updated_at"]
        .map(|name| (name, "1"));
    let texts = [
        ("key", "k"),
        ("job", "j"),
        ("namespace", "n"),
        ("status", "claimed"),
        ("claim_id", "c"),
        ("effects", effects),
    ];
    let all = numbers.into_iter().chain(texts);
    all.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec())).collect()
}

#[test]
fn a_hash_is_a_record_or_an_error_that_names_the_field() {
    let maybe = ["not_before", "unrecorded_since", "output_omitted", "expires_at", "quarantine"];
    let mut names: Vec<String> = fine().into_keys().collect();
    names.extend(maybe.map(str::to_owned));
    names.sort();
    let values: [&[u8]; 14] = [
        b"",
        b"0",
        b"2",
        b"-1",
        b"1.5",
        b"18446744073709551616",
        b"claimed",
        b"pending",
        b"{}",
        b"[]",
        b"{\"a\":{}}",
        b"{\"a\":{\"state\":\"done\",\"generation\":-1,\"first_sent\":1}}",
        b"\xff\x00",
        b" 1",
    ];
    let id = RecordId::from_hex(&"ab".repeat(32)).unwrap();
    fuzz_made("hash of Redis", |rng| {
        let mut hash = fine();
        for _ in 0..rng.usize(0..4) {
            let name = &names[rng.usize(..names.len())];
            match rng.u8(0..4) {
                0 => hash.remove(name),
                _ => hash.insert(name.clone(), values[rng.usize(..values.len())].to_vec()),
            };
        }
        match decode(&id, &hash) {
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("field") || said.contains("version"), "{said}");
                assert_eq!(error.kind(), ErrorKind::Record);
            }
            Ok(record) => {
                let again: Hash = encode(&record)
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?.into_bytes())))
                    .collect();
                assert_eq!(decode(&id, &again).unwrap(), record);
            }
        }
    });
}
