//! Which targets may be called. A payload fills part of the URL, so a private address is refused
//! unless the jobs file names it; also where a name resolves to one.

use std::error::Error as StdError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::{Host, Url};

use crate::error::{BoxError, HandlerError};

/// A host, with or without a port, that may be called although it is private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHost {
    host: Host<String>,
    port: Option<u16>,
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a host or host:port");
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| wrong())?;
        let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        let host = url.host().filter(|_| is_plain).ok_or_else(wrong)?.to_owned();
        // The parser drops a scheme's own port, so look for it in the text.
        let port = if text.ends_with(":80") { Some(80) } else { url.port() };
        Ok(Self { host, port })
    }
}

impl AllowedHost {
    fn names(&self, url: &Url) -> bool {
        let port_fits = self.port.is_none() || self.port == url.port_or_known_default();
        port_fits && url.host().is_some_and(|host| host.to_owned() == self.host)
    }
}

/// The target is private and not named in `allow_hosts`.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is a private, loopback, link-local or reserved target; name it in allow_hosts to call it"
)]
struct Refused(String);

/// The client to call `url` with: the guarded one, unless the jobs file names the host.
pub(super) fn client_for(url: &Url, allowed: &[AllowedHost]) -> Result<Client, HandlerError> {
    if allowed.iter().any(|host| host.names(url)) {
        return OPEN.get_or_make(None);
    }
    let literal = match url.host() {
        Some(Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
        _ => None,
    };
    match literal {
        Some(ip) if !is_public(ip) => {
            Err(HandlerError::terminal(Refused(ip.to_string())).not_sent())
        }
        _ => GUARDED.get_or_make(Some(Arc::new(PublicOnly))),
    }
}

/// The open client, and `url` with its host replaced by `receiver`.
pub(in crate::effect) fn client_instead(
    mut url: Url,
    receiver: SocketAddr,
) -> Result<(Client, Url), HandlerError> {
    let moved = url.set_scheme("http").is_ok()
        && url.set_ip_host(receiver.ip()).is_ok()
        && url.set_port(Some(receiver.port())).is_ok();
    if !moved {
        return Err(HandlerError::terminal("the url's host cannot be replaced"));
    }
    Ok((OPEN.get_or_make(None)?, url))
}

/// A request that got no answer. The URL is left out: it is made from the payload.
pub(super) fn failed(error: reqwest::Error) -> HandlerError {
    let mut cause: Option<&dyn StdError> = Some(&error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return HandlerError::terminal(refused).not_sent();
        }
        cause = error.source();
    }
    let (is_for_good, is_unconnected) = (error.is_builder(), error.is_connect());
    let error = HandlerError::from(error.without_url());
    if is_for_good {
        HandlerError::terminal(error.message()).not_sent()
    } else if is_unconnected {
        error.not_sent()
    } else {
        error
    }
}

/// Clients are made at their first use: reading the machine's certificates takes a cold start's
/// time that a worker without this effect need not pay.
struct Lazy(OnceLock<Client>);

static OPEN: Lazy = Lazy(OnceLock::new());
static GUARDED: Lazy = Lazy(OnceLock::new());

impl Lazy {
    fn get_or_make(&self, resolver: Option<Arc<PublicOnly>>) -> Result<Client, HandlerError> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        // Fails only if there is one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("onlyonce/", env!("CARGO_PKG_VERSION")))
            // A proxy would resolve the name itself, past the guard.
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .pool_idle_timeout(Duration::from_secs(15));
        if let Some(resolver) = resolver {
            builder = builder.dns_resolver(resolver);
        }
        let client = builder.build()?;
        Ok(self.0.get_or_init(|| client).clone())
    }
}

/// Resolves names to public addresses only. One private address among them refuses the name: which
/// one is called would be chance.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            if found.iter().any(|address| !is_public(address.ip())) {
                return Err(BoxError::from(Refused(name.as_str().to_owned())));
            }
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// By the IANA special-purpose registry: what is not globally reachable is refused.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224..=255, _, _)
    );
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    // An address that carries an IPv4 one reaches what that one reaches.
    let carried = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        // IPv4-mapped, and NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            carried(high, low)
        }
        // 6to4.
        [0x2002, high, low, ..] => carried(high, low),
        // Teredo and the rest of the protocol assignments, then documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Of the rest only global unicast, 2000::/3.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_special_addresses_are_refused() {
        let refused = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "ff02::1",
            "2001:db8::1",
            "::127.0.0.1",
            "fec0::1",
        ];
        for ip in refused {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    fn is_allowed(url: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<AllowedHost> = allowed.iter().map(|host| host.parse().unwrap()).collect();
        client_for(&url.parse().unwrap(), &allowed).is_ok()
    }

    #[test]
    fn only_named_private_hosts_are_called() {
        assert!(!is_allowed("http://127.0.0.1:8080/", &[]));
        assert!(!is_allowed("http://0x7f.1/", &[]));
        assert!(!is_allowed("http://2130706433/", &[]));
        assert!(!is_allowed("http://[::1]/", &["127.0.0.1"]));
        assert!(is_allowed("http://127.0.0.1:8080/", &["127.0.0.1"]));
        assert!(is_allowed("http://127.0.0.1:8080/", &["127.0.0.1:8080"]));
        assert!(!is_allowed("http://127.0.0.1:8081/", &["127.0.0.1:8080"]));
        assert!(!is_allowed("http://127.0.0.1:8081/", &["127.0.0.1:80"]));
        assert!(is_allowed("http://127.0.0.1/", &["127.0.0.1:80"]));
        assert!("a/b".parse::<AllowedHost>().is_err());
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_a_private_address_is_refused() {
        let url: Url = "http://localhost:9/".parse().unwrap();
        let client = client_for(&url, &[]).unwrap();
        let error = failed(client.get(url).send().await.unwrap_err());
        assert_eq!(error.failure(), &crate::protocol::Failure::Terminal);
        assert!(error.message().contains("allow_hosts"), "{}", error.message());
    }
}
