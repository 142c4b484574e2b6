//! Rules of the DynamoDB table.

use super::{FINE, Judged, one};
use crate::ops::doctor::facts::{Deployment, Index, Key, Place, StoreFacts, Table};
use crate::ops::doctor::known::{Known, Untold};

const TTL: &str = "expires_at";

/// The table, if it is one and is there.
fn table(deployment: &Deployment) -> Result<Option<(&Place, &Table)>, Untold> {
    Ok(match deployment.store.told()? {
        Some(StoreFacts::DynamoDb(place, table)) => table.told()?.map(|table| (place, table)),
        _ => None,
    })
}

pub fn missing(deployment: &Deployment) -> Judged {
    match deployment.store.told()? {
        Some(StoreFacts::DynamoDb(place, Known::Absent)) => one(
            format!("there is no table {:?}", place.shown()),
            "run `onlyonce setup`, or correct ONLYONCE_STORE",
        ),
        _ => FINE,
    }
}

fn listed(key: &[Key]) -> String {
    let parts: Vec<_> =
        key.iter().map(|Key(name, role, kind)| format!("{name} ({kind}, {role})")).collect();
    parts.join(", ")
}

pub fn key_schema(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    match table.key.told()? {
        Some(key) if *key != [Key::new("pk", "HASH", "S")] => one(
            format!("the key of table {:?} is {}", place.shown(), listed(key)),
            "make a table whose only key is pk (S, HASH): `onlyonce setup` on a new name",
        ),
        _ => FINE,
    }
}

pub fn parked_index_missing(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    match table.parked.told()? {
        Some(_) => FINE,
        None => one(
            format!("table {:?} has no index named parked", place.shown()),
            "add a global secondary index `parked`: parked (S, HASH), updated_at (N, RANGE), all \
             attributes",
        ),
    }
}

pub fn parked_index_wrong(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    let Some(Index { key, projection }) = table.parked.told()? else { return FINE };
    let wanted = [Key::new("parked", "HASH", "S"), Key::new("updated_at", "RANGE", "N")];
    let what = match (key.told()?, projection.told()?) {
        (Some(key), _) if *key != wanted => format!("has the key {}", listed(key)),
        (_, Some(projection)) if projection != "ALL" => format!("holds {projection} alone"),
        _ => return FINE,
    };
    one(
        format!("the index parked of table {:?} {what}", place.shown()),
        "make it anew: parked (S, HASH), updated_at (N, RANGE), all attributes",
    )
}

pub fn ttl_off(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    match table.ttl.told()? {
        Some(_) => FINE,
        None => one(
            format!("table {:?} has no TTL", place.shown()),
            format!("turn it on, on the attribute {TTL}: `onlyonce setup` does"),
        ),
    }
}

pub fn ttl_other_attribute(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    match table.ttl.told()? {
        Some(attribute) if attribute != TTL => one(
            format!("the TTL of table {:?} is on {attribute}", place.shown()),
            format!("turn it off, and on again on the attribute {TTL}"),
        ),
        _ => FINE,
    }
}

pub fn pitr_off(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    if table.is_restorable.told()? == Some(&true) {
        return FINE;
    }
    one(
        format!("table {:?} has no point-in-time recovery", place.shown()),
        format!(
            "aws dynamodb update-continuous-backups --table-name {} \
             --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true",
            place.shown()
        ),
    )
}

pub fn global_table(deployment: &Deployment) -> Judged {
    let Some((place, table)) = table(deployment)? else { return FINE };
    match table.replicas.told()? {
        Some(regions) if !regions.is_empty() => one(
            format!("table {:?} has replicas in {}", place.shown(), regions.join(", ")),
            "let workers of one Region alone use it, and say so to whoever fails over",
        ),
        _ => FINE,
    }
}
