//! Whatever stands in a template, and whatever fills it.

use std::collections::BTreeMap;

use serde_json::json;

use super::row::{Amount, Cell, RowChange, RowEffect};
use super::template::Template;
use crate::fuzz::fuzz;
use crate::payload::Payload;
use crate::store::{RowValue, RowWrite};

/// The first line is what the payload puts in, what follows is the template.
#[cfg_attr(test, test)]
pub(crate) fn a_template_is_read_or_refused_and_fills_to_a_bounded_size() {
    fuzz("template", |input| {
        let (value, text) = input.split_once('\n').unwrap_or(("x", input));
        let template = match Template::new(text) {
            Ok(template) => template,
            Err(why) => return assert!(why.to_string().len() < 1000, "{why}"),
        };
        let value = value.repeat(64);
        let all = json!({"a": value, "name": value, "n": 1, "order_id": null});
        let payload = Payload::json(all.to_string()).unwrap();
        if let Ok(filled) = template.fill(&payload, "the text") {
            assert!(filled.len() <= 8 * 1024 * 1024);
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn a_row_is_written_under_a_key_that_every_store_takes_or_not_at_all() {
    let filled = |text| Cell::Filled(Template::new(text).unwrap());
    let row = |change| RowEffect {
        table: "stock".to_owned(),
        key: BTreeMap::from([("sku".to_owned(), filled("{sku}"))]),
        change,
    };
    let amount = Amount::Minus("quantity".to_owned());
    let rows = [
        row(RowChange::Add {
            add: BTreeMap::from([("available".to_owned(), amount)]),
            floor: BTreeMap::from([("available".to_owned(), 0)]),
        }),
        row(RowChange::Put(BTreeMap::from([("name".to_owned(), filled("{sku} {name}"))]))),
    ];
    fuzz("row", |body| {
        let Ok(payload) = Payload::json(body) else {
            return;
        };
        for write in rows.iter().filter_map(|row| row.write(&payload).ok()) {
            let (RowWrite::PutIfAbsent { key, .. }
            | RowWrite::Add { key, .. }
            | RowWrite::DeleteIf { key, .. }) = &write;
            assert!(
                !matches!(&key["sku"], RowValue::Text(text) if text.is_empty() || text.len() > 1024)
            );
            if let RowWrite::Add { add, .. } = &write {
                assert!(add["available"] <= 0, "it takes away and never adds");
            }
        }
    });
}
