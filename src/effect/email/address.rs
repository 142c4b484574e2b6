//! Addresses that a payload fills in: one each, and nothing else beside it.

use lettre::Address;
use lettre::message::Mailbox;
use url::Host;

use crate::effect::template::{Template, field_text};
use crate::payload::Payload;

/// `{email}`, `sales@example.com` or `{name} <{email}>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddressTemplate {
    name: Option<Template>,
    address: Template,
}

impl AddressTemplate {
    /// Reads a template. One without fields must be an address.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.contains(is_break) {
            return Err("an address has no line's end and no other control character".to_owned());
        }
        let (name, address) = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
            Some((name, address)) => (Some(name.trim().trim_matches('"')), address.trim()),
            None => (None, text),
        };
        let template = |text| Template::new(text).map_err(|why| why.to_string());
        let name = name.filter(|name| !name.is_empty()).map(template).transpose()?;
        let read = Self { name, address: template(address)? };
        if read.address.fields().next().is_none() {
            let address = read.address.fill(&Payload::raw(""), "address")?;
            self::address(&address).ok_or_else(|| format!("{address:?} is no mail address"))?;
        }
        Ok(read)
    }

    /// The address for this payload. An error names the field and never its value.
    pub fn fill(&self, payload: &Payload, what: &str) -> Result<Mailbox, String> {
        let name = self.name.as_ref().map(|name| one_line(name, payload, what)).transpose()?;
        let filled = one_line(&self.address, payload, what)?;
        let address = address(&filled).ok_or_else(|| {
            let fields: Vec<_> = self.address.fields().map(|field| format!("{field:?}")).collect();
            format!("{what} is no single mail address as filled from {}", fields.join(", "))
        })?;
        Ok(Mailbox::new(name.filter(|name| !name.trim().is_empty()), address))
    }
}

/// A whole address that is written out, with or without a name.
pub(crate) fn mailbox(text: &str) -> Result<Mailbox, String> {
    let template = AddressTemplate::new(text)?;
    let names = template.name.iter().flat_map(Template::fields);
    if let Some(field) = names.chain(template.address.fields()).next() {
        return Err(format!("{{{field}}}: the sender must be written out"));
    }
    template.fill(&Payload::raw(""), "the address")
}

/// One address in ASCII: what every server takes.
fn address(text: &str) -> Option<Address> {
    let address: Address = text.parse().ok()?;
    if address.domain().is_ascii() {
        return Some(address).filter(|address| address.user().is_ascii());
    }
    match Host::parse(address.domain()).ok()? {
        Host::Domain(domain) => {
            Address::new(address.user(), domain).ok().filter(|address| address.user().is_ascii())
        }
        _ => None,
    }
}

/// Whether it ends a line, for some reader or other, or is no text at all.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// The template filled with values that stay on their line: none can begin a header, or a command.
pub(super) fn one_line(
    template: &Template,
    payload: &Payload,
    what: &str,
) -> Result<String, String> {
    for field in template.fields() {
        if field_text(payload, field, what)?.contains(is_break) {
            return Err(format!(
                "the payload's field {field:?} has a line's end or another control character, \
                 which {what} cannot have"
            ));
        }
    }
    template.fill(payload, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str, body: &str) -> Result<String, String> {
        let template = AddressTemplate::new(template).unwrap();
        template.fill(&Payload::json(body).unwrap(), "to").map(|to| to.to_string())
    }

    #[test]
    fn one_address_is_filled_in() {
        let body = r#"{"name":"Ada, \"the\" <first>","mail":"ada@example.com","user":"ada"}"#;
        assert_eq!(filled("{mail}", body).unwrap(), "ada@example.com");
        assert_eq!(filled("{user}@example.com", body).unwrap(), "ada@example.com");
        assert_eq!(filled("Sales <a@b.example>", "{}").unwrap(), "Sales <a@b.example>");
        let named = filled("{name} <{mail}>", body).unwrap();
        assert!(named.ends_with("<ada@example.com>") && named.starts_with('"'), "{named}");
        let wide = filled("{m}", r#"{"m":"ada@b\u00fccher.example"}"#).unwrap();
        assert_eq!(wide, "ada@xn--bcher-kva.example");
    }

    #[test]
    fn no_second_address_and_no_line_can_be_slipped_in() {
        for value in [
            "",
            "ada",
            "eve@evil.example, ada@example.com",
            "eve@evil.example;ada@example.com",
            "eve@evil.example ada@example.com",
            "<eve@evil.example>",
            "Eve <eve@evil.example>",
            "eve@evil.example>\\r\\nRCPT TO:<ada@example.com",
            "eve@evil.example\\nBcc: ada@example.com",
            "eve@evil.example\\u0000",
            "\\u00e9ve@evil.example",
        ] {
            let error = filled("{mail}", &format!("{{\"mail\":\"{value}\"}}")).unwrap_err();
            assert!(error.contains("\"mail\"") && !error.contains("ve@evil"), "{value}: {error}");
        }
        let error = filled("{name} <a@b.example>", r#"{"name":"Ada\r\nBcc: eve@evil.example"}"#);
        assert!(error.unwrap_err().contains("\"name\""));
    }

    #[test]
    fn what_is_written_out_must_be_right() {
        assert!(AddressTemplate::new("nobody").is_err());
        assert!(AddressTemplate::new("a@b.example, c@d.example").is_err());
        assert!(AddressTemplate::new("{mail").is_err());
        assert!(mailbox("{name} <shop@example.com>").is_err());
        assert_eq!(mailbox("A Shop <shop@example.com>").unwrap().email.domain(), "example.com");
    }
}
