//! The `email` effect: one mail made from the payload, its server's answer told apart.
//!
//! 2xx is done. 4xx did nothing and is worth trying again, 5xx did nothing and is terminal. A
//! connection that is lost before the mail was sent did nothing; of one that is lost after that,
//! nobody can tell.

mod address;
mod message;
#[cfg(feature = "ses")]
mod ses;
mod smtp;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rehearsal::{self, rehearsed};
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::protocol::EffectKey;
use crate::secret::{Reading, Refused, SecretValue};

pub(crate) use address::{AddressTemplate, mailbox};
pub(crate) use message::MailTemplate;
#[cfg(feature = "ses")]
pub(crate) use ses::Ses;
pub(crate) use smtp::{Security, Server};

use message::Mail;

/// The name this effect is recorded under, and part of the key that is each mail's id.
const NAME: &str = "email";

/// What may happen after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// Sent again, with the same Message-ID.
    AtLeastOnce,
    /// Not sent again by itself.
    AtMostOnce,
}

impl Guarantee {
    /// As the jobs file says it.
    const fn name(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at-least-once",
            Self::AtMostOnce => "at-most-once",
        }
    }
}

/// Who takes the mail.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// A mail server, after a login if it wants one.
    Smtp { server: Arc<Server>, login: Option<SecretValue> },
    #[cfg(feature = "ses")]
    Ses(Ses),
}

/// One mail per job.
#[derive(Clone, Debug)]
pub(crate) struct EmailEffect {
    pub mail: MailTemplate,
    pub by: By,
    pub guarantee: Guarantee,
    /// The longest one delivery to the server may take.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    message_id: String,
    /// In the words of whoever took it.
    answer: String,
}

/// What a replay answers; the answer is kept with the effect.
#[derive(Serialize)]
struct Done {
    message_id: String,
}

/// A login as it was read.
type Login<'a> = (&'a SecretValue, Reading);

impl EmailEffect {
    /// Runs the effect for one call.
    pub async fn run(&self, call: Call) -> Result<Reply, HandlerError> {
        let Call { payload, context } = call;
        // The same for each copy, so that whoever gets two can tell.
        let key = EffectKey::new(context.id(), NAME, 0);
        let mail = self.mail.fill(&payload, &key, context.now()).map_err(HandlerError::terminal)?;
        // Before the effect begins: without its login it has not been sent, for certain.
        let login = match &self.by {
            By::Smtp { login: Some(login), .. } if context.outside().is_none() => {
                Some((login, login.read(context.clock(), context.stop()).await?))
            }
            _ => None,
        };
        let effect = context.effect(NAME);
        let send = || self.send(&context, mail, login);
        let answer: Answer = match self.guarantee {
            Guarantee::AtLeastOnce => effect.at_least_once(send).await?,
            Guarantee::AtMostOnce => effect.at_most_once(send).await?,
        };
        Ok(Reply::of(&Done { message_id: answer.message_id }))
    }

    async fn send(
        &self,
        context: &Context,
        mail: Mail,
        login: Option<Login<'_>>,
    ) -> Result<Answer, HandlerError> {
        let answer = match (&self.by, context.outside()) {
            (by, Some(receiver)) => {
                let headers = rehearsal::headers(context, self.guarantee.name())?;
                let (place, bytes) = ((NAME, by.name()), mail.bytes.clone());
                rehearsed(context, receiver, place, headers, "message/rfc822", bytes).await?;
                "rehearsed".to_owned()
            }
            (By::Smtp { server, .. }, None) => self.deliver(context, server, &mail, login).await?,
            #[cfg(feature = "ses")]
            (By::Ses(ses), None) => ses.send(context, &mail, self.timeout).await?,
        };
        Ok(Answer { message_id: mail.id, answer })
    }

    /// Delivers it; once more if the login it was refused for has changed meanwhile.
    async fn deliver(
        &self,
        context: &Context,
        server: &Server,
        mail: &Mail,
        login: Option<Login<'_>>,
    ) -> Result<String, HandlerError> {
        let clock = context.clock();
        let until = context.stop().min(clock.now() + self.timeout);
        let read = login.as_ref().map(|(_, read)| read);
        let fault = match server.deliver(mail, read, clock, until).await {
            Ok(answer) => return Ok(answer),
            Err(fault) => fault,
        };
        if let (true, Some((login, used))) = (fault.is_login_refused(), &login) {
            match login.refused(used, clock, until).await.map_err(HandlerError::not_sent)? {
                Refused::Changed(now) => {
                    let again = server.deliver(mail, Some(&now), clock, until).await;
                    return again.map_err(|fault| fault.told(server));
                }
                Refused::Unchanged => {}
                Refused::TooSoon(wait) => {
                    let message = format!(
                        "{}; it was read within the last minute, and is read again after it",
                        fault.told(server).message()
                    );
                    return Err(HandlerError::retry_after(wait, message).not_sent());
                }
            }
        }
        Err(fault.told(server))
    }
}

impl By {
    fn name(&self) -> &str {
        match self {
            Self::Smtp { server, .. } => server.host(),
            #[cfg(feature = "ses")]
            Self::Ses(_) => "ses",
        }
    }
}

#[cfg(any(test, fuzzing))]
#[path = "fuzz_tests.rs"]
pub(crate) mod fuzz;
