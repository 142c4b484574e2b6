//! The `ONLYONCE_*` variables.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::{Error, ErrorKind};
use crate::runtime::LAMBDA;

/// What the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `ONLYONCE_STORE`: where records live.
    pub store: StoreSetting,
    /// `ONLYONCE_JOBS`: the jobs file.
    pub jobs: PathBuf,
    /// `ONLYONCE_NAMESPACE`: separates deployments in one table.
    pub namespace: String,
    /// `ONLYONCE_QUEUE_URL`: overrides the URL looked up from an event's ARN.
    pub queue_url: Option<String>,
    /// `ONLYONCE_DLQ_URL`: the quarantine queue.
    pub dlq_url: Option<String>,
    /// `ONLYONCE_RELAY`: what a worker outside Lambda does with the store's outbox.
    pub relay: RelaySetting,
    /// `ONLYONCE_CONCURRENCY`: jobs at once in a batch, or in a worker that polls.
    pub concurrency: usize,
    /// `ONLYONCE_HEALTH`: where a worker that polls says how it is.
    pub health: Option<SocketAddr>,
    /// `ONLYONCE_DRILL`: whether this worker plays crashes, for `onlyonce drill`.
    pub drill: bool,
    /// `ONLYONCE_METRICS`: how the worker tells what it has counted.
    pub metrics: MetricsSetting,
    /// `ONLYONCE_SERVICE`: whose metrics and traces they are.
    pub service: String,
}

/// Where records live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSetting {
    /// `dynamodb://TABLE`.
    DynamoDb {
        /// The table's name.
        table: String,
    },
    /// `sqlite:PATH`.
    Sqlite {
        /// The file.
        path: PathBuf,
    },
    /// `redis://`, `rediss://`, `redis+unix://` or `unix://`.
    Redis(StoreUrl),
    /// `postgres://` or `postgresql://`.
    Postgres(StoreUrl),
    /// `memory:`; nothing survives the process.
    Memory,
}

/// What a worker outside Lambda does with the store's outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RelaySetting {
    /// `off`: nothing.
    #[default]
    Off,
    /// `also`: it relays it beside polling its queue.
    Also,
    /// `only`: it relays it and polls no queue.
    Only,
}

/// How a worker tells what it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsSetting {
    /// `off`: not at all.
    #[default]
    Off,
    /// `emf`: on its standard output, as CloudWatch reads it from a log.
    Emf,
}

/// The URL of a server, which may hold a password: it shows its scheme and no more.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// The URL itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:...", scheme(&self.0))
    }
}

/// What stands before the first colon: all of an address that is fit to be shown.
fn scheme(text: &str) -> &str {
    text.split(':').next().unwrap_or_default()
}

impl Settings {
    /// Reads the environment of this process.
    pub fn from_env() -> Result<Self, Error> {
        Self::read(&|name| std::env::var(name).ok())
    }

    /// Reads an environment. A variable that is set but empty is an error: whoever set it meant
    /// something.
    pub fn read(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let get = |name: &str| match env(name) {
            Some(value) if value.trim().is_empty() => {
                Err(fault(format!("{name} is set but empty; give it a value or unset it")))
            }
            value => Ok(value),
        };
        let concurrency = match get("ONLYONCE_CONCURRENCY")? {
            None => 32,
            Some(text) => {
                text.parse().ok().filter(|n| (1..=10_000).contains(n)).ok_or_else(|| {
                    fault(format!(
                        "ONLYONCE_CONCURRENCY is {text:?}; give a number from 1 to 10000"
                    ))
                })?
            }
        };
        let health = get("ONLYONCE_HEALTH")?.map(|text| {
            text.parse().map_err(|_| {
                fault(format!(
                    "ONLYONCE_HEALTH is {text:?}; give an address and a port, 127.0.0.1:8080 say"
                ))
            })
        });
        let relay = match get("ONLYONCE_RELAY")?.as_deref() {
            None | Some("off") => RelaySetting::Off,
            Some("also") => RelaySetting::Also,
            Some("only") => RelaySetting::Only,
            Some(other) => {
                return Err(fault(format!(
                    "ONLYONCE_RELAY is {other:?}; give off, also (beside the queue) or only"
                )));
            }
        };
        let drill = match get("ONLYONCE_DRILL")?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                return Err(fault(format!(
                    "ONLYONCE_DRILL is {other:?}; give 1 where a worker is to play crashes for \
                     `onlyonce drill`, or unset it"
                )));
            }
        };
        let metrics = match get("ONLYONCE_METRICS")?.as_deref() {
            // In Lambda the standard output is CloudWatch's.
            None if env(LAMBDA).is_some() => MetricsSetting::Emf,
            None | Some("off") => MetricsSetting::Off,
            Some("emf") => MetricsSetting::Emf,
            Some(other) => {
                return Err(fault(format!("ONLYONCE_METRICS is {other:?}; give emf or off")));
            }
        };
        let service = match get("ONLYONCE_SERVICE")? {
            Some(name) if !is_dimension(&name) => {
                return Err(fault(format!(
                    "ONLYONCE_SERVICE has {} bytes or characters that CloudWatch does not take; \
                     give up to {MOST_SERVICE} visible ASCII characters, and no colon first",
                    name.len()
                )));
            }
            Some(name) => name,
            None => {
                let function = env("AWS_LAMBDA_FUNCTION_NAME").filter(|name| is_dimension(name));
                function.unwrap_or_else(|| "worker".to_owned())
            }
        };
        let jobs = match get("ONLYONCE_JOBS")? {
            Some(path) => PathBuf::from(path),
            None => {
                // Where there is neither, the one a person can make is missed.
                let [here, in_layer] = ["jobs.toml", "/opt/jobs.toml"].map(PathBuf::from);
                if !here.exists() && in_layer.exists() { in_layer } else { here }
            }
        };
        Ok(Self {
            store: store(get("ONLYONCE_STORE")?.as_deref().unwrap_or("dynamodb://onlyonce"))?,
            jobs,
            namespace: get("ONLYONCE_NAMESPACE")?.unwrap_or_else(|| "default".to_owned()),
            queue_url: get("ONLYONCE_QUEUE_URL")?,
            dlq_url: get("ONLYONCE_DLQ_URL")?,
            relay,
            concurrency,
            health: health.transpose()?,
            drill,
            metrics,
            service,
        })
    }
}

/// The longest name of a service, in bytes.
const MOST_SERVICE: usize = 255;

/// Whether CloudWatch takes it as the value of a dimension.
fn is_dimension(name: &str) -> bool {
    let is_shown = |c: u8| c.is_ascii_graphic() || c == b' ';
    (1..=MOST_SERVICE).contains(&name.len())
        && name.bytes().all(is_shown)
        && !name.trim().is_empty()
        && !name.starts_with(':')
}

fn store(text: &str) -> Result<StoreSetting, Error> {
    if text == "memory:" {
        return Ok(StoreSetting::Memory);
    }
    let after = |scheme| text.strip_prefix(scheme).filter(|rest: &&str| !rest.is_empty());
    if let Some(table) = after("dynamodb://") {
        return Ok(StoreSetting::DynamoDb { table: table.to_owned() });
    }
    if let Some(path) = after("sqlite:") {
        // A file at the root, to us; to whoever wrote it, one beside the program.
        if path.starts_with("//") {
            return Err(fault(
                "ONLYONCE_STORE begins with sqlite://; write sqlite:PATH, as in sqlite:jobs.db or \
                 sqlite:/var/lib/jobs.db"
                    .to_owned(),
            ));
        }
        return Ok(StoreSetting::Sqlite { path: PathBuf::from(path) });
    }
    if ["redis://", "rediss://", "redis+unix://", "unix://"].iter().any(|it| after(it).is_some()) {
        return Ok(StoreSetting::Redis(StoreUrl(text.to_owned())));
    }
    if ["postgres://", "postgresql://"].iter().any(|it| after(it).is_some()) {
        return Ok(StoreSetting::Postgres(StoreUrl(text.to_owned())));
    }
    // What it says may hold a password.
    Err(fault(format!(
        "ONLYONCE_STORE begins with {:?}; this version knows dynamodb://TABLE, sqlite:PATH, \
         redis://HOST, postgres://HOST/DATABASE and memory:",
        scheme(text)
    )))
}

fn fault(text: String) -> Error {
    Error::new(ErrorKind::Config, "read the environment").with_detail(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(&|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_has_defaults() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.store, StoreSetting::DynamoDb { table: "onlyonce".to_owned() });
        assert_eq!(settings.concurrency, 32);
        assert_eq!(settings.namespace, "default");
        assert_eq!(settings.relay, RelaySetting::Off);
        assert_eq!(settings.health, None);
    }

    #[test]
    fn health_is_an_address_and_a_port() {
        let health = |text| read(&[("ONLYONCE_HEALTH", text)]).map(|settings| settings.health);
        assert_eq!(health("127.0.0.1:8080").unwrap(), Some(([127, 0, 0, 1], 8080).into()));
        for wrong in ["8080", "here:8080", "127.0.0.1"] {
            let error = health(wrong).unwrap_err().to_string();
            assert!(error.contains("ONLYONCE_HEALTH") && error.contains("8080"), "{error}");
        }
    }

    #[test]
    fn a_store_is_a_scheme_and_a_place() {
        let store = |text| read(&[("ONLYONCE_STORE", text)]).map(|settings| settings.store);
        let sqlite = |path| StoreSetting::Sqlite { path: PathBuf::from(path) };
        assert_eq!(store("sqlite:dev.db").unwrap(), sqlite("dev.db"));
        assert_eq!(store("sqlite:/var/lib/jobs.db").unwrap(), sqlite("/var/lib/jobs.db"));
        assert_eq!(store("memory:").unwrap(), StoreSetting::Memory);
        assert!(store("sqlite:").is_err());
        assert!(store("sqlite://jobs.db").unwrap_err().to_string().contains("sqlite:jobs.db"));
        assert!(store("dynamodb://").is_err());
        for url in ["redis://host/1", "rediss://u:p@host:1", "redis+unix:///s", "unix:///s?db=1"] {
            let StoreSetting::Redis(read) = store(url).unwrap() else { panic!("{url}") };
            assert_eq!(read.reveal(), url);
        }
        assert!(store("redis://").is_err());
        for url in ["postgres://ada@host/jobs", "postgresql:///jobs?host=/run/postgresql"] {
            let StoreSetting::Postgres(read) = store(url).unwrap() else { panic!("{url}") };
            assert_eq!(read.reveal(), url);
        }
        assert!(store("postgres://").is_err());
    }

    #[test]
    fn metrics_are_on_in_lambda_and_off_elsewhere() {
        let metrics = |more: &[_]| read(more).unwrap().metrics;
        let lambda = ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001");
        assert_eq!(metrics(&[]), MetricsSetting::Off);
        assert_eq!(metrics(&[lambda]), MetricsSetting::Emf);
        assert_eq!(metrics(&[lambda, ("ONLYONCE_METRICS", "off")]), MetricsSetting::Off);
        assert_eq!(metrics(&[("ONLYONCE_METRICS", "emf")]), MetricsSetting::Emf);
        let error = read(&[("ONLYONCE_METRICS", "statsd")]).unwrap_err().to_string();
        assert!(error.contains("ONLYONCE_METRICS") && error.contains("emf"), "{error}");
    }

    #[test]
    fn a_service_is_named_or_the_function_is() {
        let service = |more: &[_]| read(more).map(|settings| settings.service);
        let function = ("AWS_LAMBDA_FUNCTION_NAME", "shop-worker");
        assert_eq!(service(&[]).unwrap(), "worker");
        assert_eq!(service(&[function]).unwrap(), "shop-worker");
        assert_eq!(service(&[function, ("ONLYONCE_SERVICE", "shop")]).unwrap(), "shop");
        let long = "x".repeat(MOST_SERVICE + 1);
        for wrong in [":shop", "caf\u{e9}", "a\nb", long.as_str()] {
            let error = service(&[("ONLYONCE_SERVICE", wrong)]).unwrap_err().to_string();
            assert!(error.contains("ONLYONCE_SERVICE"), "{error}");
        }
    }

    #[test]
    fn set_but_empty_names_the_variable() {
        for name in [
            "ONLYONCE_STORE",
            "ONLYONCE_JOBS",
            "ONLYONCE_NAMESPACE",
            "ONLYONCE_QUEUE_URL",
            "ONLYONCE_DLQ_URL",
            "ONLYONCE_RELAY",
            "ONLYONCE_CONCURRENCY",
            "ONLYONCE_DRILL",
            "ONLYONCE_METRICS",
            "ONLYONCE_SERVICE",
        ] {
            let error = read(&[(name, " ")]).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let settings = read(&[("ONLYONCE_STORE", "rediss://ada:s3cret@host:6379/0")]).unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("rediss:..."), "{shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("ada"), "{shown}");
        for wrong in ["mysql://ada:s3cret@host", "rediss:/ada:s3cret@host"] {
            let error = read(&[("ONLYONCE_STORE", wrong)]).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_password_of_postgres_is_shown_nowhere() {
        let settings = read(&[("ONLYONCE_STORE", "postgres://ada:s3cret@host/jobs")]).unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("postgres:..."), "{shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("ada"), "{shown}");
        let wrong = read(&[("ONLYONCE_STORE", "postgress://ada:s3cret@host")]).unwrap_err();
        assert!(!wrong.to_string().contains("s3cret"), "{wrong}");
    }

    #[test]
    fn a_wrong_value_says_what_is_right() {
        let error = read(&[("ONLYONCE_STORE", "mysql://x")]).unwrap_err().to_string();
        assert!(error.contains("dynamodb://TABLE"), "{error}");
        assert!(read(&[("ONLYONCE_CONCURRENCY", "0")]).is_err());
        let error = read(&[("ONLYONCE_DRILL", "yes")]).unwrap_err().to_string();
        assert!(error.contains("ONLYONCE_DRILL") && error.contains("give 1"), "{error}");
        let error = read(&[("ONLYONCE_RELAY", "yes")]).unwrap_err().to_string();
        assert!(error.contains("only"), "{error}");
    }
}
