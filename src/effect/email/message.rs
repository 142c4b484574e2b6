//! A mail made from the payload.

use std::time::{Duration, UNIX_EPOCH};

use lettre::Message;
use lettre::address::Envelope;
use lettre::message::{Mailbox, MultiPart, SinglePart};

use super::address::{AddressTemplate, one_line};
use crate::effect::template::Template;
use crate::payload::Payload;
use crate::protocol::{EffectKey, Timestamp};

/// Longer than any subject somebody reads.
const MAX_SUBJECT: usize = 1000;

/// What each mail of a job is made from.
#[derive(Clone, Debug)]
pub(crate) struct MailTemplate {
    pub from: Mailbox,
    pub to: AddressTemplate,
    pub reply_to: Option<AddressTemplate>,
    pub subject: Template,
    pub text: Template,
    /// The same as HTML; fields are escaped.
    pub html: Option<Template>,
}

/// One mail.
pub(super) struct Mail {
    /// Its Message-ID.
    pub id: String,
    pub envelope: Envelope,
    /// As it is sent, in ASCII.
    pub bytes: Vec<u8>,
}

impl MailTemplate {
    /// The mail for this payload. An error names the field and never its value.
    pub(super) fn fill(
        &self,
        payload: &Payload,
        key: &EffectKey,
        now: Timestamp,
    ) -> Result<Mail, String> {
        let subject = one_line(&self.subject, payload, "the subject")?;
        if subject.len() > MAX_SUBJECT {
            return Err(format!("the subject would be over {MAX_SUBJECT} bytes"));
        }
        let id = format!("<{key}@{}>", self.from.email.domain());
        let mut message = Message::builder()
            .message_id(Some(id.clone()))
            .date(UNIX_EPOCH + Duration::from_millis(now.millis()))
            .from(self.from.clone())
            .to(self.to.fill(payload, "to")?)
            .subject(subject);
        if let Some(reply_to) = &self.reply_to {
            message = message.reply_to(reply_to.fill(payload, "reply_to")?);
        }
        let text = SinglePart::plain(self.text.fill(payload, "template")?);
        let message = match &self.html {
            None => message.singlepart(text),
            Some(html) => {
                let html = SinglePart::html(html.fill_with(payload, "html", escape)?);
                // Its boundary is random: known beforehand, a field could end a part.
                message.multipart(MultiPart::alternative().singlepart(text).singlepart(html))
            }
        };
        let message = message.map_err(|error| format!("the mail cannot be written: {error}"))?;
        let (envelope, bytes) = (message.envelope().clone(), message.formatted());
        if !bytes.is_ascii() {
            return Err("the mail cannot be written in ASCII".to_owned());
        }
        Ok(Mail { id, envelope, bytes })
    }
}

/// Adds a value as text of HTML, or of an attribute in quotes.
fn escape(value: &str, html: &mut String) {
    for c in value.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::email::mailbox;
    use crate::protocol::{IdempotencyKey, RecordId};

    fn filled(body: &str) -> Result<String, String> {
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
        let mail = mail.fill(&Payload::json(body).unwrap(), &key, Timestamp::from_millis(0))?;
        assert_eq!(mail.id, format!("<{key}@example.com>"));
        assert_eq!(mail.envelope.to().len(), 1);
        Ok(String::from_utf8(mail.bytes).unwrap())
    }

    #[test]
    fn a_mail_has_what_its_templates_say() {
        let mail = filled(r#"{"name":"Ada","email":"ada@example.com","order":7}"#).unwrap();
        for line in [
            "From: \"A Shop\" <shop@example.com>\r\n",
            "To: Ada <ada@example.com>\r\n",
            "Reply-To: orders+7@example.com\r\n",
            "Subject: Welcome, Ada\r\n",
            "Date: Thu, 01 Jan 1970 00:00:00 +0000\r\n",
            "Dear Ada,\r\nyour order 7.",
            "<p title=\"Ada\">Ada</p>",
        ] {
            assert!(mail.contains(line), "{line:?} in {mail}");
        }
    }

    #[test]
    fn fields_stay_in_their_place() {
        let mail = filled(
            r#"{"name":"<b>\"&'","email":"ada@example.com","order":"\r\n.\r\nRCPT TO:<e@e.e>"}"#,
        );
        // Not in an address; in the text a line is a line.
        assert!(mail.unwrap_err().contains("\"order\""));
        let mail = filled(r#"{"name":"<b>\"&'","email":"ada@example.com","order":"7"}"#).unwrap();
        assert!(mail.contains("&lt;b&gt;&quot;&amp;&#39;</p>"), "{mail}");
        let error = filled(r#"{"name":"A\nBcc: e@e.e","email":"ada@example.com","order":"7"}"#);
        assert!(error.unwrap_err().contains("\"name\""));
        let long =
            format!(r#"{{"name":"{}","email":"ada@example.com","order":"7"}}"#, "x".repeat(1000));
        assert!(filled(&long).unwrap_err().contains("subject"));
    }
}
