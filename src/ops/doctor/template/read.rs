//! From a template to deployments: one for each queue that a worker serves.

use super::functions::{Served, function, served};
use super::resolve::Scope;
use super::{queues, roles, tables};
use crate::config::StoreSetting;
use crate::ops::doctor::facts::{Deployment, StoreFacts};
use crate::ops::doctor::known::Known;

pub(super) fn deployments(
    scope: &Scope<'_>,
    function: Option<&str>,
) -> Result<Vec<Deployment>, String> {
    let all = served(scope);
    let is_worker = |it: &&Served<'_>| match function {
        Some(name) => it.name == name,
        None => is_onlyonces(it),
    };
    let mut chosen: Vec<_> = all.iter().filter(is_worker).collect();
    // A worker that leaves all to its defaults.
    if chosen.is_empty() && function.is_none() {
        chosen = all.iter().collect();
    }
    if chosen.is_empty() {
        return Err(match function {
            Some(name) => format!("no function {name:?} of this template serves a queue"),
            None => "no function of this template serves a queue".to_owned(),
        });
    }
    Ok(chosen.into_iter().map(|it| deployment(scope, it, &all)).collect())
}

fn is_onlyonces(served: &Served<'_>) -> bool {
    let variables = served.properties.pointer("/Environment/Variables");
    let mut names = variables.and_then(|it| it.as_object()).into_iter().flatten();
    names.any(|(name, _)| name.starts_with("ONLYONCE_"))
}

fn deployment(scope: &Scope<'_>, served: &Served<'_>, all: &[Served<'_>]) -> Deployment {
    let queue = served.queue.clone().map(|text| queues::queue(scope, &text));
    let redrive = queue.clone().and_then(|queue| queue.redrive);
    let dlq = queues::dead_letters(scope, &redrive);
    Deployment {
        queue,
        dlq,
        source: Known::Is(served.source.clone()),
        function: Known::Is(function(scope, served)),
        quarantine: served.environment.dlq_url.clone().map(|url| queues::place(scope, &url)),
        store: store(scope, &served.environment.store),
        role: roles::policies(scope, &served.properties),
        sharers: Known::Is(sharers(scope, served, all)),
        ..Deployment::unknown(served.name, "the template does not say it")
    }
}

fn store(scope: &Scope<'_>, setting: &Known<StoreSetting>) -> Known<StoreFacts> {
    const ELSEWHERE: &str =
        "the template does not say how this store is set up; run doctor where it is";
    setting.clone().map(|setting| match setting {
        StoreSetting::DynamoDb { table } => {
            let (place, table) = tables::table(scope, &table);
            StoreFacts::DynamoDb(place, table)
        }
        StoreSetting::Redis(_) => StoreFacts::Redis(Known::untold(ELSEWHERE)),
        StoreSetting::Postgres(_) => StoreFacts::Sql("postgres", Known::untold(ELSEWHERE)),
        StoreSetting::Sqlite { .. } => StoreFacts::Sql("sqlite", Known::untold(ELSEWHERE)),
        StoreSetting::Memory => StoreFacts::Memory,
    })
}

/// Other functions of the template that claim beside this one, with other code or other jobs.
fn sharers(scope: &Scope<'_>, served: &Served<'_>, all: &[Served<'_>]) -> Vec<String> {
    let claims = |it: &Served<'_>| {
        it.environment.store.is().cloned().zip(it.environment.namespace.is().cloned())
    };
    let code = |it: &Served<'_>| {
        let jobs = it.properties.pointer("/Environment/Variables/ONLYONCE_JOBS");
        let of_code = ["CodeUri", "Code", "ImageUri", "InlineCode"]
            .map(|field| it.properties.get(field).map(|value| scope.resolve(value)));
        (of_code, jobs.map(|value| scope.resolve(value)))
    };
    let mine = claims(served);
    let mut names: Vec<String> = all
        .iter()
        .filter(|it| it.name != served.name && is_onlyonces(it))
        .filter(|it| mine.is_some() && claims(it) == mine && code(it) != code(served))
        .map(|it| it.name.to_owned())
        .collect();
    names.dedup();
    names
}
