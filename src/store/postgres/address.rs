//! What a `postgres://` URL says.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Error, ErrorKind};

/// How long one host may take to be connected with.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long what was sent may stay without the other machine's word that it has arrived.
const UNHEARD: Duration = Duration::from_secs(5);
/// Connections, unless the URL says how many.
const POOL: usize = 10;

/// The parts of a URL. Its password is in `config` alone, which does not show it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub config: Config,
    /// The certificates to trust instead of the machine's.
    pub root: Option<PathBuf>,
    /// How many connections at most.
    pub pool: usize,
}

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE&..`. No error quotes it.
    pub fn read(url: &str) -> Result<Self, Error> {
        // What stands before the host may have any character.
        let host = url.find('@').unwrap_or(0);
        let query = url.get(host..).and_then(|rest| rest.find('?')).map(|at| host + at);
        let (mut address, query) = match query.and_then(|at| url.split_at_checked(at)) {
            Some((address, query)) => (address.to_owned(), query.get(1..).unwrap_or_default()),
            None => (url.to_owned(), ""),
        };
        let (mut root, mut pool) = (None, POOL);
        let mut separator = '?';
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslrootcert", path)) => root = Some(PathBuf::from(path)),
                Some(("pool_size", number)) => {
                    pool = number.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(
                        || wrong("pool_size must be a number of connections from 1 to 1000"),
                    )?;
                }
                // Its name and its chain are verified in any case.
                Some(("sslmode", "verify-full")) => {
                    address.push(separator);
                    address.push_str("sslmode=require");
                    separator = '&';
                }
                _ => {
                    address.push(separator);
                    address.push_str(parameter);
                    separator = '&';
                }
            }
        }
        let mut config: Config = address.parse().map_err(|error: tokio_postgres::Error| {
            // It names the parameter, and quotes no value.
            let why = error.into_source().map(|why| why.to_string()).unwrap_or_default();
            wrong(&format!("{why}; sslmode is disable, prefer, require or verify-full"))
        })?;
        let has_no_host = config.get_hosts().is_empty() && config.get_hostaddrs().is_empty();
        // A part of a password, if it has an @ itself.
        let is_torn = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if has_no_host || config.get_hosts().iter().any(is_torn) {
            return Err(wrong("no host; in a user's name or a password write @ as %40, / as %2F"));
        }
        if config.get_application_name().is_none() {
            config.application_name("onlyonce");
        }
        config
            .connect_timeout(CONNECTING)
            .tcp_user_timeout(UNHEARD)
            .keepalives_idle(UNHEARD)
            .keepalives_interval(UNHEARD)
            .keepalives_retries(2);
        Ok(Self { config, root, pool })
    }

    /// How long it may take until one of the hosts is connected with.
    pub fn connecting(&self) -> Duration {
        let hosts = self.config.get_hosts().len().max(self.config.get_hostaddrs().len());
        CONNECTING.saturating_mul(u32::try_from(hosts).unwrap_or(u32::MAX))
    }

    /// Whether TLS may be spoken at all.
    pub fn may_encrypt(&self) -> bool {
        let is_remote = |host: &Host| matches!(host, Host::Tcp(_));
        self.config.get_ssl_mode() != SslMode::Disable
            && (self.config.get_hosts().iter().any(is_remote)
                || !self.config.get_hostaddrs().is_empty())
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        let names = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let addresses = self.config.get_hostaddrs().iter().map(ToString::to_string);
        let mut hosts: Vec<_> = names.collect();
        if hosts.is_empty() {
            hosts = addresses.collect();
        }
        let mut ports = self.config.get_ports().to_vec();
        ports.dedup();
        match ports.as_slice() {
            [port] => format!("{}:{port}", hosts.join(",")),
            _ => hosts.join(","),
        }
    }
}

fn wrong(detail: &str) -> Error {
    Error::new(ErrorKind::Config, "read the postgres:// URL").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let address = Address::read(
            "postgres://ada:p%40ss@db.example:6432/jobs?sslmode=verify-full&pool_size=3\
             &sslrootcert=/etc/ca.pem&options=-csearch_path%3Dwork",
        )
        .unwrap();
        assert_eq!((address.place().as_str(), address.pool), ("db.example:6432", 3));
        assert_eq!(address.root, Some(PathBuf::from("/etc/ca.pem")));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.config.get_password(), Some("p@ss".as_bytes()));
        assert_eq!(address.config.get_options(), Some("-csearch_path=work"));
        assert!(address.may_encrypt());

        let socket = Address::read("postgresql:///jobs?host=/run/postgresql").unwrap();
        assert_eq!((socket.place().as_str(), socket.pool), ("/run/postgresql", POOL));
        assert!(!socket.may_encrypt());
        let two = Address::read("postgres://u@a:1,b:2/jobs?target_session_attrs=read-write");
        assert_eq!(two.unwrap().connecting(), CONNECTING * 2);
    }

    #[test]
    fn a_wrong_url_is_an_error_that_quotes_no_part_of_it() {
        for url in [
            "postgres://",
            "postgres://ada:hunter2@/jobs",
            "postgres://ada:hunter2@x@db/jobs",
            "postgres://ada:hunter2@db:x/jobs",
            "postgres://ada:hunter2@db/jobs?sslmode=verify-ca",
            "postgres://ada:hunter2@db/jobs?pool_size=0",
            "postgres://ada:hunter2@db/jobs?unheard=of",
            "postgres://ada:hunter2@db/jobs?sslmode",
        ] {
            let error = Address::read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            let said = format!("{error} {error:?}");
            assert!(!said.contains("hunter") && !said.contains("ada"), "{said}");
        }
        let shown = format!("{:?}", Address::read("postgres://ada:hunter2@db/jobs").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
