//! The worker's part of the drill: a job that does nothing but be counted, and the crashes and lost
//! answers it is played with.
//!
//! None of it exists in a worker unless `ONLYONCE_DRILL=1`, and such a worker starts in the namespace
//! `drill` alone: what is played there meets no record and no job of anybody's own.

mod job;
mod ledger;
mod played;
mod playing;
#[cfg(feature = "cli")]
mod reading;
mod row;
mod scenario;

use std::sync::Arc;

use self::played::PlayedStore;
use self::playing::Playing;
use crate::config::{Settings, StoreSetting};
use crate::error::{Error, ErrorKind};
use crate::handler::Router;
use crate::rules::MessageRules;
use crate::sdk::SdkConfig;
use crate::store::Store;

#[cfg(all(test, feature = "cli"))]
pub(crate) use self::scenario::{Point, Write};
// For the command.
#[cfg(feature = "cli")]
pub(crate) use self::{
    job::Order,
    reading::{Kept, Reading},
    row::{Event, Row},
    scenario::{DrillKey, Effect, Scenario},
};
pub(crate) use ledger::Ledger;

/// The job's name.
pub(crate) const JOB: &str = "onlyonce.drill";
/// The one namespace it is played in.
pub(crate) const NAMESPACE: &str = "drill";

/// The jobs and the store of a worker; with `ONLYONCE_DRILL=1`, those of the drill. An error where
/// that is set and the rest of the environment does not fit it.
pub(crate) fn installed(
    settings: &Settings,
    sdk: &SdkConfig,
    jobs: Router,
    store: Arc<dyn Store>,
) -> Result<(Router, Arc<dyn Store>), Error> {
    if !settings.drill {
        return Ok((jobs, store));
    }
    let refuse = |detail: String| Err(Error::new(ErrorKind::Config, "start").with_detail(detail));
    if settings.namespace != NAMESPACE {
        return refuse(format!(
            "ONLYONCE_DRILL is set, and the namespace is {:?}: crashes are played in the namespace \
             {NAMESPACE:?} alone; set ONLYONCE_NAMESPACE={NAMESPACE}, or unset ONLYONCE_DRILL",
            settings.namespace
        ));
    }
    let StoreSetting::DynamoDb { table } = &settings.store else {
        return refuse(
            "ONLYONCE_DRILL is set, and the drill keeps its ledger in DynamoDB: set ONLYONCE_STORE to \
             dynamodb://TABLE, or unset ONLYONCE_DRILL"
                .to_owned(),
        );
    };
    let playing = Arc::new(Playing::new(Ledger::new(sdk, table)));
    tracing::warn!(worker = playing.worker(), "this worker plays crashes: ONLYONCE_DRILL is set");
    // Its messages are told by their attributes, whatever the other jobs' are.
    let jobs = jobs.messages(MessageRules::default()).with(job::job(playing.clone()));
    Ok((jobs, Arc::new(PlayedStore::new(store, playing))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    fn start(variables: &[(&str, &str)]) -> Result<(Router, Arc<dyn Store>), Error> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name);
        let settings =
            Settings::read(&|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap();
        let sdk = SdkConfig::builder()
            .behavior_version(aws_config::BehaviorVersion::latest())
            .region(aws_config::Region::from_static("us-east-1"))
            .build();
        installed(&settings, &sdk, Router::new(), Arc::new(MemoryStore::new()))
    }

    #[test]
    fn the_job_is_there_with_its_switch_alone() {
        for (variables, is_there) in [
            (&[][..], false),
            (&[("ONLYONCE_NAMESPACE", "drill")], false),
            (&[("ONLYONCE_DRILL", "1"), ("ONLYONCE_NAMESPACE", "drill")], true),
        ] {
            let (jobs, _) = start(variables).unwrap();
            assert_eq!(jobs.get(JOB).is_some(), is_there, "{variables:?}");
        }
    }

    #[test]
    fn a_worker_with_the_switch_starts_nowhere_else() {
        let error = start(&[("ONLYONCE_DRILL", "1")]).map(drop).unwrap_err().to_string();
        assert!(error.contains("ONLYONCE_NAMESPACE=drill"), "{error}");
        let elsewhere = [
            ("ONLYONCE_DRILL", "1"),
            ("ONLYONCE_NAMESPACE", "drill"),
            ("ONLYONCE_STORE", "sqlite:a.db"),
        ];
        let error = start(&elsewhere).map(drop).unwrap_err().to_string();
        assert!(error.contains("dynamodb://TABLE"), "{error}");
    }
}
