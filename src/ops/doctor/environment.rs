//! What a worker's environment says, read as the worker reads it.

use super::known::{Known, Untold};
use crate::config::{Settings, StoreSetting};

/// The settings that can be looked at from outside.
pub struct Environment {
    pub store: Known<StoreSetting>,
    /// `ONLYONCE_DLQ_URL`.
    pub dlq_url: Known<String>,
    pub namespace: Known<String>,
    /// What no worker starts with.
    pub fault: Option<String>,
}

const UNREADABLE: &str = "the worker's environment has a fault";

impl Environment {
    /// Reads variables.
    pub fn read(get: impl Fn(&str) -> Known<String>) -> Self {
        let told = |name: &str| match get(name) {
            Known::Untold(Untold(why)) => Err(Untold(format!("{name}: {why}"))),
            _ => Ok(()),
        };
        match Settings::read(&|name| get(name).is().cloned()) {
            Ok(settings) => Self {
                store: Known::from(told("ONLYONCE_STORE").map(|()| Some(settings.store))),
                dlq_url: Known::from(told("ONLYONCE_DLQ_URL").map(|()| settings.dlq_url)),
                namespace: Known::from(
                    told("ONLYONCE_NAMESPACE").map(|()| Some(settings.namespace)),
                ),
                fault: None,
            },
            Err(error) => Self {
                store: Known::untold(UNREADABLE),
                dlq_url: Known::untold(UNREADABLE),
                namespace: Known::untold(UNREADABLE),
                fault: Some(error.to_string()),
            },
        }
    }
}
