//! Delivery to a mail server, step by step, so that it is known how far it came.

use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use url::Url;

use super::message::Mail;
use crate::error::HandlerError;
use crate::protocol::Timestamp;
use crate::runtime::{Clock, before};
use crate::secret::Reading;

/// How long one address of the server is tried for.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long a server that has taken the mail may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// How much of an answer's text is kept.
const MAX_ANSWER: usize = 500;

/// How the way to a server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// TLS from the first byte.
    Tls,
    /// TLS before anything that matters; without it nothing is sent.
    StartTls,
    /// Not at all.
    None,
}

/// A mail server.
pub(crate) struct Server {
    host: String,
    port: u16,
    security: Security,
    /// Made at the first use: it reads the machine's certificates.
    tls: OnceLock<TlsParameters>,
}

/// How far a delivery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connecting,
    StartTls,
    Login,
    Sender,
    Recipient,
    Data,
    /// From here on the server may have taken the mail.
    Mail,
}

/// Why the mail was not taken, as far as is known.
pub(super) struct Fault {
    step: Step,
    /// `None`: time was over.
    error: Option<Error>,
}

impl Server {
    /// Reads `smtps://host`, `smtp://host` or `smtp+insecure://host`, with or without a port. What
    /// is wrong is not quoted: it may have a password in it.
    pub fn new(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|_| "smtp is no URL; write \"smtps://host:465\"")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a login is not written here; say where it is kept: secret = { env = \
                        \"VARIABLE\" }, or ssm, or secretsmanager"
                .to_owned());
        }
        let is_plain = matches!(url.path(), "" | "/") && url.query().is_none();
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if !is_plain || url.fragment().is_some() || host.is_empty() {
            return Err("smtp is a server alone; write \"smtps://host:465\"".to_owned());
        }
        let (security, port) = match url.scheme() {
            "smtps" => (Security::Tls, 465),
            // On this machine nobody listens in, and nobody has a certificate.
            "smtp" if is_loopback(&host) => (Security::None, 587),
            "smtp" => (Security::StartTls, 587),
            "smtp+insecure" => (Security::None, 25),
            other => {
                return Err(format!(
                    "smtp cannot be {other:?}; write \"smtps://\" (TLS), \"smtp://\" (STARTTLS) or \
                     \"smtp+insecure://\" (neither)"
                ));
            }
        };
        let port = url.port().unwrap_or(port);
        Ok(Self { host, port, security, tls: OnceLock::new() })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn security(&self) -> Security {
        self.security
    }

    pub fn is_here(&self) -> bool {
        is_loopback(&self.host)
    }

    fn tls(&self) -> Result<TlsParameters, Error> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let tls = TlsParameters::new(self.host.clone())?;
        Ok(self.tls.get_or_init(|| tls).clone())
    }

    /// Delivers a mail by `until`, and answers in the server's words.
    pub(super) async fn deliver(
        &self,
        mail: &Mail,
        login: Option<&Reading>,
        clock: &dyn Clock,
        until: Timestamp,
    ) -> Result<String, Fault> {
        let login = login.map(|read| {
            let (user, password) = read.text().split_once(':').unwrap_or((read.text(), ""));
            Credentials::new(user.to_owned(), password.to_owned())
        });
        let mut session = Session { server: self, step: Step::Connecting };
        let (mut connection, answer) =
            match before(clock, until, session.deliver(mail, login)).await {
                Some(Ok(delivered)) => delivered,
                Some(Err(error)) => return Err(Fault { step: session.step, error: Some(error) }),
                None => return Err(Fault { step: session.step, error: None }),
            };
        // The mail is delivered, whatever comes of this.
        let _ = before(clock, until.min(clock.now() + GOODBYE), connection.quit()).await;
        let words = answer.message().collect::<Vec<_>>().join(" ");
        Ok(format!("{} {words}", answer.code()).chars().take(MAX_ANSWER).collect())
    }
}

struct Session<'a> {
    server: &'a Server,
    step: Step,
}

impl Session<'_> {
    async fn deliver(
        &mut self,
        mail: &Mail,
        login: Option<Credentials>,
    ) -> Result<(AsyncSmtpConnection, Response), Error> {
        let Server { host, port, security, .. } = self.server;
        let hello = ClientId::default();
        let tls = match security {
            Security::Tls => Some(self.server.tls()?),
            _ => None,
        };
        let place = (host.as_str(), *port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(place, Some(CONNECTING), &hello, tls, None).await?;
        if *security == Security::StartTls {
            self.step = Step::StartTls;
            connection.starttls(self.server.tls()?, &hello).await?;
        }
        if let Some(login) = login {
            self.step = Step::Login;
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &login).await?;
        }
        self.step = Step::Sender;
        let from = mail.envelope.from().cloned();
        connection.command(MailFrom::new(from, Vec::new())).await?;
        self.step = Step::Recipient;
        for to in mail.envelope.to() {
            connection.command(Rcpt::new(to.clone(), Vec::new())).await?;
        }
        self.step = Step::Data;
        connection.command(Data).await?;
        self.step = Step::Mail;
        let answer = connection.message(&mail.bytes).await?;
        Ok((connection, answer))
    }
}

impl Fault {
    pub fn is_login_refused(&self) -> bool {
        self.step == Step::Login && self.error.as_ref().is_some_and(Error::is_permanent)
    }

    /// What it means. The server's words may quote an address, and are left out.
    pub fn told(&self, server: &Server) -> HandlerError {
        let (host, step) = (&server.host, self.step);
        let code = self.error.as_ref().and_then(|error| Some((error, error.status()?)));
        if let Some((error, code)) = code {
            let message = format!("the mail server {host} answered {code} to {step}");
            return match error.is_permanent() {
                true => HandlerError::rejected(message),
                false => HandlerError::retryable(message).not_sent(),
            };
        }
        let message = match &self.error {
            None => format!("the mail server {host} gave no answer to {step} in time"),
            // It offers no STARTTLS, or no login that we know.
            Some(error) if error.is_client() => {
                let message = format!("the mail server {host} cannot be used: {error}");
                return HandlerError::terminal(message).not_sent();
            }
            Some(error) if error.is_response() => {
                format!("the mail server {host} broke off at {step}")
            }
            Some(error) => format!("the connection to {host} failed at {step}: {}", cause(error)),
        };
        match step {
            Step::Mail => HandlerError::retryable(message),
            _ => HandlerError::retryable(message).not_sent(),
        }
    }
}

/// What lies beneath: the system's word, or that of TLS.
fn cause(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::StartTls => "STARTTLS",
            Self::Login => "the login",
            Self::Sender => "the sender",
            Self::Recipient => "the recipient",
            Self::Data => "DATA",
            Self::Mail => "the mail itself",
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, security, .. } = self;
        write!(f, "Server({host}:{port}, {security:?})")
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_scheme_and_a_host() {
        let read = |text: &str| {
            let server = Server::new(text).unwrap();
            (server.host.clone(), server.port, server.security)
        };
        let named = |port, security| ("mail.example.com".to_owned(), port, security);
        assert_eq!(read("smtps://mail.example.com"), named(465, Security::Tls));
        assert_eq!(read("smtp://mail.example.com"), named(587, Security::StartTls));
        assert_eq!(read("smtp://mail.example.com:2525/"), named(2525, Security::StartTls));
        assert_eq!(read("smtp+insecure://mail.example.com"), named(25, Security::None));
        for here in ["localhost", "127.0.0.1", "[::1]"] {
            assert_eq!(read(&format!("smtp://{here}:25")).2, Security::None, "{here}");
            assert_eq!(read(&format!("smtps://{here}:25")).2, Security::Tls, "{here}");
        }
    }

    #[test]
    fn what_is_no_server_says_what_to_write_and_quotes_nothing() {
        for text in [
            "mail.example.com",
            "smtps://",
            "smtps://mail.example.com/path",
            "smtps://mail.example.com?x=1",
            "smtps://mail.example.com:99999",
            "https://mail.example.com",
            "smtps://ada:s3cret@mail.example.com",
            "ada:s3cret@mail.example.com",
        ] {
            let error = Server::new(text).unwrap_err();
            assert!(error.contains("writ") && !error.contains("s3cret"), "{text}: {error}");
        }
    }
}
