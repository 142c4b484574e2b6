//! The `email` effect's fields.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::{Common, Fields, Wrong};
use crate::config::secret::{self, SecretTable};
use crate::effect::email::{
    AddressTemplate, By, EmailEffect, Guarantee, MailTemplate, Security, Server, mailbox,
};
use crate::effect::template::Template;
use crate::handler::Job;

/// What an attempt needs beside the delivery: claiming is over, settling is to come.
const AROUND_THE_DELIVERY: Duration = Duration::from_secs(5);
/// The largest file that a mail is made from.
const MAX_TEMPLATE: u64 = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmailTable {
    from: Option<String>,
    to: Option<String>,
    reply_to: Option<String>,
    subject: Option<String>,
    template: Option<String>,
    html: Option<String>,
    smtp: Option<String>,
    #[serde(default)]
    ses: bool,
    #[serde(default, deserialize_with = "secret::table")]
    secret: Option<SecretTable>,
}

const GIVES: [(&str, Guarantee, &str); 2] = [
    ("at-least-once", Guarantee::AtLeastOnce, "a rare second copy has the same Message-ID"),
    ("at-most-once", Guarantee::AtMostOnce, "in doubt a person decides"),
];

pub(super) fn job(fields: Fields<'_>, common: &Common<'_>) -> Result<Job, Wrong> {
    let table: EmailTable = fields.read()?;
    let mut wrong = Wrong::default();
    let guarantee = wrong.keep("guarantee", common.guarantee(&GIVES));
    let from = needed(&table.from, "no sender is named; add from = \"shop@example.com\"");
    let from = wrong.keep("from", from.and_then(mailbox));
    let to = needed(&table.to, "no recipient is named; add to = \"{email}\"");
    let to = wrong.keep("to", to.and_then(AddressTemplate::new));
    let reply_to = table.reply_to.as_deref().map(AddressTemplate::new).transpose();
    let reply_to = wrong.keep("reply_to", reply_to);
    let subject = needed(&table.subject, "no subject is given; add subject = \"..\"");
    let subject = wrong.keep("subject", subject.and_then(one_line));
    let text = "no text is given; add template = \"mail.txt\", a file beside the jobs file";
    let text = needed(&table.template, text);
    let text = wrong.keep("template", text.and_then(|name| file(common.folder, name)));
    let html = table.html.as_deref().map(|name| file(common.folder, name)).transpose();
    let html = wrong.keep("html", html);
    let by = table.by(common, &mut wrong);
    let (
        Some(guarantee),
        Some(from),
        Some(to),
        Some(reply_to),
        Some(subject),
        Some(text),
        Some(html),
        Some(by),
        true,
    ) = (guarantee, from, to, reply_to, subject, text, html, by, wrong.0.is_empty())
    else {
        return Err(wrong);
    };
    let timeout = common.timeout.unwrap_or(Duration::from_secs(30));
    let mail = MailTemplate { from, to, reply_to, subject, text, html };
    let effect = Arc::new(EmailEffect { mail, by, guarantee, timeout });
    let job = Job::from_calls(common.name, move |call| {
        let effect = effect.clone();
        async move { effect.run(call).await }
    });
    Ok(job.timeout(timeout.saturating_add(AROUND_THE_DELIVERY)))
}

impl EmailTable {
    fn by(&self, common: &Common<'_>, wrong: &mut Wrong) -> Option<By> {
        let Some(smtp) = &self.smtp else {
            return wrong.keep("ses", self.by_ses());
        };
        if self.ses {
            wrong.say("ses", "smtp and ses both say who takes the mail; leave one of them");
        }
        let server = wrong.keep("smtp", Server::new(smtp));
        let login = self.secret.as_ref().map(|secret| secret.login(common.env)).transpose();
        let login = wrong.keep("secret", login);
        let (server, login) = (server?, login?);
        if login.is_some() && server.security() == Security::None && !server.is_here() {
            let text = "smtp+insecure would send the login in the clear; write \"smtps://\" or \
                        \"smtp://\", or remove secret";
            wrong.say("smtp", text);
        }
        Some(By::Smtp { server: Arc::new(server), login })
    }

    fn by_ses(&self) -> Result<By, String> {
        match (self.ses, &self.secret) {
            (false, _) => Err("it is not said who takes the mail; add smtp = \
                               \"smtps://mail.example.com\", or ses = true"
                .to_owned()),
            (true, Some(_)) => Err("SES knows the worker by its role; remove secret".to_owned()),
            (true, None) => ses(),
        }
    }
}

#[cfg(feature = "ses")]
fn ses() -> Result<By, String> {
    Ok(By::Ses(crate::effect::email::Ses::default()))
}

#[cfg(not(feature = "ses"))]
fn ses() -> Result<By, String> {
    Err("this program was built without the feature \"ses\"; build it with the feature, or use \
         smtp"
        .to_owned())
}

fn needed<'a>(text: &'a Option<String>, why: &str) -> Result<&'a str, String> {
    text.as_deref().ok_or_else(|| why.to_owned())
}

fn one_line(text: &str) -> Result<Template, String> {
    if text.contains(char::is_control) {
        return Err("a subject is one line".to_owned());
    }
    Template::new(text).map_err(|why| why.to_string())
}

/// A file beside the jobs file.
fn file(folder: &Path, name: &str) -> Result<Template, String> {
    let path = folder.join(name);
    let wrong = |why: String| format!("{}: {why}", path.display());
    let mut text = String::new();
    let read =
        File::open(&path).and_then(|file| file.take(MAX_TEMPLATE + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(wrong(format!("{error}; put it beside the jobs file"))),
        Ok(size) if size as u64 > MAX_TEMPLATE => Err(wrong("over 256 KiB".to_owned())),
        Ok(_) => Template::new(&text).map_err(|why| wrong(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::jobs_file::faults;

    const WELCOME: &str = r#"
[job."user.welcome"]
effect = "email"
guarantee = "at-least-once"
from = "A Shop <shop@example.com>"
to = "{email}"
reply_to = "orders@example.com"
subject = "Welcome, {name}"
template = "tests/fixtures/welcome.txt"
html = "tests/fixtures/welcome.html"
smtp = "smtps://mail.example.com"
secret = { env = "LOGIN" }
timeout = "20s"
"#;

    #[test]
    fn a_whole_job_is_read() {
        assert_eq!(faults(WELCOME), "");
        assert_eq!(faults(&WELCOME.replace("at-least-once", "at-most-once")), "");
        let from_aws = WELCOME.replace("env = \"LOGIN\"", "ssm = \"/mail\"");
        assert_eq!(faults(&from_aws), "");
        let here = WELCOME.replace("smtps://mail.example.com", "smtp://localhost:1025");
        assert_eq!(faults(&here), "");
    }

    #[test]
    fn each_fault_names_its_line_and_the_fix() {
        let cases = [
            (
                "\"at-least-once\"",
                "\"keyed\"",
                "4: job \"user.welcome\": the email effect cannot give guarantee \"keyed\"; it gives \"at-least-once\"",
            ),
            ("from = \"A Shop <shop@example.com>\"\n", "", "no sender is named"),
            (
                "<shop@example.com>",
                "<{from}>",
                "5: job \"user.welcome\": {from}: the sender must be written out",
            ),
            ("<shop@example.com>", "", "5: job \"user.welcome\": \"A Shop\" is no mail address"),
            ("to = \"{email}\"\n", "", "no recipient is named"),
            ("\"{email}\"", "\"{email\"", "6: job \"user.welcome\": a { without its }"),
            (
                "\"orders@example.com\"",
                "\"orders\"",
                "7: job \"user.welcome\": \"orders\" is no mail address",
            ),
            ("subject = \"Welcome, {name}\"\n", "", "no subject is given"),
            (
                "Welcome, {name}",
                "Welcome,\\n{name}",
                "8: job \"user.welcome\": a subject is one line",
            ),
            ("template = \"tests/fixtures/welcome.txt\"\n", "", "no text is given"),
            (
                "fixtures/welcome.txt",
                "fixtures/nothing.txt",
                "9: job \"user.welcome\": tests/fixtures/nothing.txt: No such file",
            ),
            (
                "fixtures/welcome.html",
                "fixtures/s3_put.json",
                "10: job \"user.welcome\": tests/fixtures/s3_put.json: {\"Records\":[{\"eventVersion\"",
            ),
            ("smtp = \"smtps://mail.example.com\"\n", "", "it is not said who takes the mail"),
            ("smtps://mail", "https://mail", "11: job \"user.welcome\": smtp cannot be \"https\""),
            ("smtps://mail", "smtps://ada:s3cret@mail", "a login is not written here"),
            (
                "smtps://mail",
                "smtp+insecure://mail",
                "11: job \"user.welcome\": smtp+insecure would send the login in the clear",
            ),
            (
                "secret = ",
                "ses = true\nsecret = ",
                "12: job \"user.welcome\": smtp and ses both say",
            ),
            (
                "smtp = \"smtps://mail.example.com\"",
                "ses = true",
                "11: job \"user.welcome\": SES knows the worker by its role",
            ),
            (
                "env = \"LOGIN\"",
                "env = \"TOKEN\"",
                "the login in TOKEN is not of the form user:password",
            ),
            (
                "env = \"LOGIN\"",
                "env = \"LOGIN\", header = \"x\"",
                "12: job \"user.welcome\": a login goes into no header",
            ),
            ("{ env = \"LOGIN\" }", "\"ada:s3cret\"", "a secret is not written here"),
            (
                "timeout = ",
                "url = \"https://x/\"\ntimeout = ",
                "13: job \"user.welcome\": unknown field `url`",
            ),
        ];
        for (right, wrong, said) in cases {
            assert!(WELCOME.contains(right), "{right}");
            let faults = faults(&WELCOME.replacen(right, wrong, 1));
            assert!(faults.starts_with("jobs.toml:") && faults.contains(said), "{wrong}: {faults}");
            assert!(!faults.contains("s3cret"), "{faults}");
        }
    }
}
