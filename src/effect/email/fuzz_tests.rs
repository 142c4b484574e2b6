//! Whatever a payload fills a mail with: it is one mail to one address, and says nothing more.

use lettre::message::Mailboxes;
use serde_json::json;

use super::address::AddressTemplate;
use super::mailbox;
use super::message::MailTemplate;
use crate::effect::template::Template;
use crate::fuzz::fuzz;
use crate::payload::Payload;
use crate::protocol::{EffectKey, IdempotencyKey, RecordId, Timestamp};

/// The first line is the template, what follows is what the payload puts into it.
#[cfg_attr(test, test)]
pub(crate) fn an_address_is_one_or_none() {
    fuzz("address", |input| {
        let (template, value) = input.split_once('\n').unwrap_or((input, "a@b.c, d"));
        let all = json!({"a": value, "name": value, "n": value});
        let payload = Payload::json(all.to_string()).unwrap();
        let Ok(template) = AddressTemplate::new(template) else {
            return;
        };
        let Ok(filled) = template.fill(&payload, "to") else {
            return;
        };
        assert!(filled.email.to_string().is_ascii());
        let text = filled.to_string();
        assert!(!text.contains(char::is_control), "{text:?}");
        if let Ok(read) = text.parse::<Mailboxes>() {
            assert_eq!(read.into_iter().count(), 1, "{text:?}");
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn a_mail_has_the_headers_that_the_job_gives_it_and_no_others() {
    const HEADERS: [&str; 9] = [
        "message-id",
        "date",
        "from",
        "to",
        "reply-to",
        "subject",
        "mime-version",
        "content-type",
        "content-transfer-encoding",
    ];
    let template = |text| Template::new(text).unwrap();
    let mail = MailTemplate {
        from: mailbox("A Shop <shop@example.com>").unwrap(),
        to: AddressTemplate::new("{name} <{email}>").unwrap(),
        reply_to: Some(AddressTemplate::new("orders+{order}@example.com").unwrap()),
        subject: template("Welcome, {name}"),
        text: template("Dear {name},\nyour order {order}."),
        html: Some(template("<p title=\"{name}\">{name}</p>")),
    };
    let id = RecordId::new("default", "welcome", &IdempotencyKey::new("k").unwrap());
    let key = EffectKey::new(&id, "email", 0);
    fuzz("mail", |body| {
        let Ok(payload) = Payload::json(body) else {
            return;
        };
        let Ok(mail) = mail.fill(&payload, &key, Timestamp::from_millis(0)) else {
            return;
        };
        assert_eq!(mail.envelope.to().len(), 1);
        let text = String::from_utf8(mail.bytes).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let mut names = Vec::new();
        // What begins with white space goes on with the line before.
        for line in head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])) {
            assert!(!line.contains(['\r', '\n']), "{line:?}");
            names.push(line.split_once(':').unwrap().0.to_ascii_lowercase());
        }
        assert!(names.iter().all(|name| HEADERS.contains(&name.as_str())), "{names:?}");
        names.sort();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "one of each: {names:?}");
    });
}
