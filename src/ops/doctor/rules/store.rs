//! Rules of where records live, whichever store that is.

use super::{FINE, Judged, one};
use crate::ops::doctor::facts::{Deployment, StoreFacts};
use crate::ops::doctor::known::Untold;
use crate::store::redis::RedisKeeping;

pub fn not_set_up(deployment: &Deployment) -> Judged {
    match deployment.store.told()? {
        Some(StoreFacts::Sql(scheme, wrong)) => match wrong.told()? {
            Some(wrong) => one(format!("{scheme}: {wrong}"), "run `onlyonce setup`"),
            None => FINE,
        },
        _ => FINE,
    }
}

pub fn not_kept(deployment: &Deployment) -> Judged {
    let fix = "use dynamodb://TABLE, postgres://.. or redis://..";
    match deployment.store.told()? {
        Some(StoreFacts::Memory) => one("ONLYONCE_STORE is memory:", fix),
        Some(StoreFacts::Sql("sqlite", _)) if deployment.function.told()?.is_some() => {
            one("ONLYONCE_STORE is a file, and each instance of a function has its own disk", fix)
        }
        _ => FINE,
    }
}

fn redis(deployment: &Deployment) -> Result<Option<&RedisKeeping>, Untold> {
    match deployment.store.told()? {
        Some(StoreFacts::Redis(keeping)) => keeping.told(),
        _ => Ok(None),
    }
}

fn unseen(what: &str) -> Untold {
    Untold(format!("Redis does not show {what}; the user may need INFO"))
}

pub fn redis_evicts(deployment: &Deployment) -> Judged {
    let Some(redis) = redis(deployment)? else { return FINE };
    match redis.policy.as_deref().ok_or_else(|| unseen("its maxmemory-policy"))? {
        "noeviction" => FINE,
        policy => one(
            format!("maxmemory-policy is {policy}"),
            "set maxmemory-policy to noeviction, and an alarm on memory",
        ),
    }
}

pub fn redis_not_persistent(deployment: &Deployment) -> Judged {
    let Some(redis) = redis(deployment)? else { return FINE };
    match redis.is_logged.ok_or_else(|| unseen("its persistence"))? {
        true => FINE,
        false => one(
            "Redis keeps no append-only file",
            "set appendonly to yes, and appendfsync to everysec or always",
        ),
    }
}

pub fn redis_replicas_unconfirmed(deployment: &Deployment) -> Judged {
    let Some(redis) = redis(deployment)? else { return FINE };
    let replicas = redis.replicas.ok_or_else(|| unseen("its replicas"))?;
    if replicas == 0 || redis.waits_for_replicas {
        return FINE;
    }
    one(
        format!("Redis has {replicas} replicas, and min-replicas-to-write is off"),
        "set min-replicas-to-write to 1 and min-replicas-max-lag to some seconds: what is lost is \
         less then, and not nothing",
    )
}

pub fn namespace_shared(deployment: &Deployment) -> Judged {
    match deployment.sharers.told()? {
        Some(sharers) if !sharers.is_empty() => one(
            format!("{} uses the same store and namespace, with other code", sharers.join(", ")),
            "give each of them an ONLYONCE_NAMESPACE of its own, unless their jobs are the same",
        ),
        _ => FINE,
    }
}
