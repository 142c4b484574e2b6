//! Writes as statements of PartiQL. They say what the expressions in `item` say, from the same
//! attributes and the same condition.

use aws_sdk_dynamodb::types::{
    AttributeValue, BatchStatementRequest, ReturnValuesOnConditionCheckFailure,
};

use super::item;
use crate::protocol::{Change, ConditionalWrite, EffectRecord, Expect, Field, Output};

/// What a write may weigh to go with others: 25 of them are far from the 16 MB of a request, and a
/// heavy one holds nobody up.
const MOST_BYTES: usize = 64 * 1024;

/// Whether a write can be a statement among others.
pub(super) fn takes(write: &ConditionalWrite) -> bool {
    let is_statement = matches!(
        (&write.expect, &write.change),
        (Expect::Absent, Change::Create(_)) | (Expect::At { .. }, Change::Update(_))
    );
    is_statement && weight(write) <= MOST_BYTES
}

/// About what its texts of any length come to.
fn weight(write: &ConditionalWrite) -> usize {
    let effect = |(name, effect): (&String, &EffectRecord)| {
        100 + name.len() + effect.result.as_ref().map_or(0, String::len)
    };
    let output = |output: &Option<Output>| match output {
        Some(Output::Stored(json)) => json.len(),
        _ => 0,
    };
    match &write.change {
        Change::Create(record) => {
            output(&record.output) + record.effects.iter().map(effect).sum::<usize>()
        }
        Change::Update(fields) => {
            let of = |field: &Field| match field {
                Field::Output(it) => output(it),
                Field::Effects(effects) => effects.iter().map(effect).sum(),
                _ => 0,
            };
            fields.iter().map(of).sum()
        }
    }
}

/// The statement; none where the write can be none.
pub(super) fn statement(table: &str, write: &ConditionalWrite) -> Option<BatchStatementRequest> {
    let (text, parameters) = match (&write.expect, &write.change) {
        // INSERT asks by itself that there is none.
        (Expect::Absent, Change::Create(record)) => insert(table, item::all_of(record)),
        (expect @ Expect::At { .. }, Change::Update(fields)) => {
            let mut asked = vec![(item::PK, item::pk(&write.id))];
            asked.extend(item::shows(expect));
            update(table, fields.iter().flat_map(item::attributes), asked)
        }
        _ => return None,
    };
    BatchStatementRequest::builder()
        .statement(text)
        .set_parameters(Some(parameters))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .ok()
}

type Statement = (String, Vec<AttributeValue>);

/// What a statement takes, at most in most cases.
const TEXT: usize = 512;
const ATTRIBUTES: usize = 24;

/// By the formatter it took more time than all the rest of a statement.
fn append<const N: usize>(text: &mut String, parts: [&str; N]) {
    parts.into_iter().for_each(|part| text.push_str(part));
}

fn insert(table: &str, item: impl Iterator<Item = (&'static str, AttributeValue)>) -> Statement {
    let mut text = String::with_capacity(TEXT);
    append(&mut text, ["INSERT INTO \"", table, "\" VALUE {"]);
    let mut parameters = Vec::with_capacity(ATTRIBUTES);
    for (name, value) in item {
        let comma = if parameters.is_empty() { "" } else { ", " };
        append(&mut text, [comma, "'", name, "': ?"]);
        parameters.push(value);
    }
    text.push('}');
    (text, parameters)
}

fn update(
    table: &str,
    set: impl Iterator<Item = (&'static str, Option<AttributeValue>)>,
    asked: Vec<(&'static str, AttributeValue)>,
) -> Statement {
    let mut text = String::with_capacity(TEXT);
    append(&mut text, ["UPDATE \"", table, "\""]);
    let mut parameters = Vec::with_capacity(ATTRIBUTES);
    for (name, value) in set {
        match value {
            Some(value) => {
                append(&mut text, [" SET \"", name, "\" = ?"]);
                parameters.push(value);
            }
            None => append(&mut text, [" REMOVE \"", name, "\""]),
        }
    }
    let mut word = "WHERE";
    for (name, value) in asked {
        append(&mut text, [" ", word, " \"", name, "\" = ?"]);
        parameters.push(value);
        word = "AND";
    }
    (text, parameters)
}
