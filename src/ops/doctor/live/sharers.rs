//! Other functions that claim beside this one.

use std::collections::BTreeSet;

use super::function::{PAGES, Worker, environment as read};
use super::{Account, untold};
use crate::ops::doctor::known::{Known, Untold};

impl Account<'_> {
    /// The functions behind other queues that use this one's store and namespace and run other code.
    pub async fn sharers(&self, worker: &Worker) -> Known<Vec<String>> {
        let Worker { name, environment, code, .. } = worker;
        let (store, namespace) = (&environment.store, &environment.namespace);
        match (store, namespace, code) {
            (Known::Is(_), Known::Is(_), Known::Is(_)) => {}
            (Known::Untold(why), ..) | (_, Known::Untold(why), _) | (_, _, Known::Untold(why)) => {
                return Known::Untold(why.clone());
            }
            _ => return Known::Absent,
        }
        let serving = match self.mappings(None, None).await {
            Ok(mappings) => mappings.into_iter().map(|it| it.function).collect::<BTreeSet<_>>(),
            Err(why) => return Known::Untold(why),
        };
        let serves = |arn: &str| {
            // A source may lead to a version or an alias.
            serving
                .iter()
                .any(|it| it == arn || it.strip_prefix(arn).is_some_and(|it| it.starts_with(':')))
        };
        let mut sharers = Vec::new();
        let mut marker = None;
        for _ in 0..PAGES {
            let ask = self.functions.list_functions().set_marker(marker).send().await;
            let page = match ask {
                Ok(page) => page,
                Err(error) => return Known::Untold(untold("lambda:ListFunctions", &error)),
            };
            for other in page.functions() {
                let is_other = other.function_name() != Some(name.as_str())
                    && other.code_sha256() != code.is().map(String::as_str)
                    && other.function_arn().is_some_and(serves);
                if is_other {
                    let of_other = read(other.environment());
                    if of_other.store == *store && of_other.namespace == *namespace {
                        sharers.push(other.function_name().unwrap_or_default().to_owned());
                    }
                }
            }
            marker = page.next_marker;
            if marker.as_ref().is_none_or(String::is_empty) {
                return Known::Is(sharers);
            }
        }
        match sharers.is_empty() {
            true => Known::Untold(Untold(format!("there are over {} functions", PAGES * 50))),
            false => Known::Is(sharers),
        }
    }
}
