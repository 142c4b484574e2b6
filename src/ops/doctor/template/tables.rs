//! The tables of a template.

use serde_json::Value;

use super::queues::physical;
use super::resolve::Scope;
use crate::ops::doctor::facts::{Index, Key, Place, Table};
use crate::ops::doctor::known::Known;

const KINDS: [&str; 2] = ["AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable"];

/// The table of this name, or that this reference leads to.
pub(super) fn table(scope: &Scope<'_>, text: &str) -> (Place, Known<Table>) {
    let name_of = |name: &str, properties: &Value| physical(scope, name, properties, "TableName");
    let made = scope.resource_of(text).filter(|(_, kind, _)| KINDS.contains(kind));
    let made = made.or_else(|| {
        scope.resources().find(|(name, kind, properties)| {
            KINDS.contains(kind) && name_of(name, properties) == text
        })
    });
    match made {
        Some((name, kind, properties)) => {
            let arn = Some(format!("${{{name}.Arn}}"));
            let place = Place { name: name_of(name, properties), arn };
            (place, Known::Is(read(scope, kind, properties)))
        }
        None => {
            let why = format!("table {text} is not made by this template");
            (Place { name: text.to_owned(), arn: None }, Known::untold(why))
        }
    }
}

fn read(scope: &Scope<'_>, kind: &str, properties: &Value) -> Table {
    let get = |name: &str| properties.get(name);
    let kinds = scope.structure(get("AttributeDefinitions"));
    let key = |schema: Option<&Value>| keys(scope.structure(schema), &kinds);
    let parked = scope.structure(get("GlobalSecondaryIndexes")).and_then(|indexes| {
        let mut indexes = indexes.as_array().into_iter().flatten();
        let found = indexes.find(|index| named(index, "IndexName") == Some("parked"));
        Known::from(found.map(|index| Index {
            key: key(index.get("KeySchema")),
            projection: scope.text(index.pointer("/Projection/ProjectionType")),
        }))
    });
    let ttl = scope.structure(get("TimeToLiveSpecification")).and_then(|ttl| {
        let is_on = scope.flag(ttl.get("Enabled"));
        is_on.and_then(
            |is_on| if is_on { scope.text(ttl.get("AttributeName")) } else { Known::Absent },
        )
    });
    let replicas = match (kind, scope.structure(get("Replicas"))) {
        // The first is the table itself.
        ("AWS::DynamoDB::GlobalTable", Known::Is(Value::Array(replicas))) => {
            let region = |it: &Value| named(it, "Region").unwrap_or("a Region").to_owned();
            Known::Is(replicas.iter().skip(1).map(region).collect())
        }
        _ => Known::Absent,
    };
    let restorable = properties
        .get("PointInTimeRecoverySpecification")
        .or_else(|| properties.pointer("/Replicas/0/PointInTimeRecoverySpecification"));
    let is_restorable =
        scope.structure(restorable).and_then(|it| scope.flag(it.get("PointInTimeRecoveryEnabled")));
    Table { key: key(get("KeySchema")), parked, ttl, is_restorable, replicas }
}

fn named<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}

fn keys(schema: Known<Value>, kinds: &Known<Value>) -> Known<Vec<Key>> {
    let kind_of = |attribute: &str| {
        let kinds = kinds.is().and_then(Value::as_array)?;
        let found = kinds.iter().find(|it| named(it, "AttributeName") == Some(attribute))?;
        named(found, "AttributeType")
    };
    schema.map(|schema| {
        let parts = schema.as_array().into_iter().flatten();
        let parts = parts.filter_map(|part| {
            let attribute = named(part, "AttributeName")?;
            Some(Key::new(attribute, named(part, "KeyType")?, kind_of(attribute).unwrap_or("?")))
        });
        parts.collect()
    })
}
