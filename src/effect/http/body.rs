//! A request's URL and body, made from the payload alone: the same each time it is sent.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::effect::template::{Part, Template, field_text, scalar_text};
use crate::payload::Payload;

pub use crate::effect::template::InvalidTemplate;

/// How a payload is written as a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// JSON in its canonical form: two ways of writing one payload give the same bytes.
    Json,
    /// `a=1&b[c]=2&d[0]=3`, sorted by name.
    Form,
    /// The message's body as it came.
    Raw,
}

impl BodyForm {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
            Self::Raw => "text/plain; charset=utf-8",
        }
    }

    pub(super) fn write(self, payload: &Payload) -> Result<String, String> {
        match self {
            Self::Json => Ok(payload.canonical().into_owned()),
            Self::Raw => Ok(payload.text().to_owned()),
            Self::Form => match payload.value() {
                Some(object @ Value::Object(_)) => {
                    let mut form = Form { pairs: Serializer::new(String::new()), left: MAX_FORM };
                    form.flatten("", object)?;
                    Ok(form.pairs.finish())
                }
                _ => Err("a form body needs a JSON object as the payload".to_owned()),
            },
        }
    }
}

/// The names and values of a form, before they are encoded. A name stands before each of its
/// items: a payload of 1 MiB could come to hundreds of GiB.
const MAX_FORM: usize = 8 * 1024 * 1024;

struct Form {
    pairs: Serializer<'static, String>,
    left: usize,
}

impl Form {
    fn flatten(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(name, _)| name.as_bytes());
                for (part, field) in fields {
                    self.inner(name, part, field)?;
                }
            }
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.inner(name, &n.to_string(), item)?;
                }
            }
            scalar => {
                let text = scalar_text(scalar).unwrap_or_default();
                self.spend(text.len())?;
                self.pairs.append_pair(name, &text);
            }
        }
        Ok(())
    }

    fn inner(&mut self, name: &str, part: &str, value: &Value) -> Result<(), String> {
        self.spend(name.len() + part.len() + 2)?;
        match name {
            "" => self.flatten(part, value),
            _ => self.flatten(&format!("{name}[{part}]"), value),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or("as a form the payload would be over 8 MiB; send it as json")?;
        Ok(())
    }
}

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A URL with `{field}` in its path, query or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate(Template);

impl UrlTemplate {
    /// Reads a template: an absolute http or https URL, its host written out.
    pub fn new(text: &str) -> Result<Self, InvalidTemplate> {
        let wrong = |why: &str| InvalidTemplate(format!("url: {why}"));
        let template = Template::new(text).map_err(|why| wrong(&why.to_string()))?;

        // A payload that could choose the host could send the secret anywhere.
        let written_out = text.split_once('{').map_or(text, |(before, _)| before);
        let authority = written_out.split_once("://").map_or("", |(_, after)| after);
        if text.contains('{') && !authority.contains(['/', '?', '#']) {
            return Err(wrong("the host must be written out; fields may fill path and query"));
        }
        let url = Url::parse(written_out).map_err(|error| wrong(&error.to_string()))?;
        match url.scheme() {
            "http" | "https" if url.has_host() => Ok(Self(template)),
            _ => Err(wrong("only http and https URLs with a host can be called")),
        }
    }

    /// The URL for this payload; each field percent-encoded. What is `named` is none of its fields.
    pub(super) fn fill(&self, payload: &Payload, named: &[(&str, &str)]) -> Result<Url, String> {
        let mut text = String::new();
        let mut is_path = true;
        for part in self.0.parts() {
            match part {
                Part::Text(part) => {
                    is_path &= !part.contains(['?', '#']);
                    text.push_str(part);
                }
                Part::Field(name) => {
                    let value = match named.iter().find(|(known, _)| known == name) {
                        Some((_, value)) => (*value).to_owned(),
                        None => field_text(payload, name, "the url")?,
                    };
                    // A URL's parser would walk up the path.
                    if value == "." || value == ".." {
                        return Err(format!(
                            "the payload's field {name:?} cannot be a path's dots"
                        ));
                    }
                    // `/users/` is all of them, and not one that has no name.
                    if is_path && value.is_empty() {
                        return Err(format!(
                            "the payload's field {name:?} is empty, and the url's path needs it"
                        ));
                    }
                    text.extend(utf8_percent_encode(&value, ENCODED));
                }
            }
        }
        Url::parse(&text).map_err(|error| format!("the url cannot be filled: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(body: &str) -> Payload {
        Payload::json(body).unwrap()
    }

    #[test]
    fn a_form_is_sorted_and_nested_with_brackets() {
        let body = payload(r#"{"b":{"y":[1,"a b"],"x":null},"a":true}"#);
        let form = BodyForm::Form.write(&body).unwrap();
        assert_eq!(form, "a=true&b%5Bx%5D=&b%5By%5D%5B0%5D=1&b%5By%5D%5B1%5D=a+b");
        assert!(BodyForm::Form.write(&payload("[1]")).is_err());
    }

    #[test]
    fn a_small_payload_cannot_make_a_form_without_end() {
        let name = "a".repeat(2000);
        let items = vec!["1"; 20_000].join(",");
        let long_names = format!("{{\"{name}\":[{items}]}}");
        let written = BodyForm::Form.write(&payload(&long_names));
        assert!(written.is_err_and(|why| why.contains("8 MiB")));
        // Nor can one that takes as long and comes to nothing.
        let nothing = format!("{{\"{name}\":[{}]}}", vec!["[]"; 20_000].join(","));
        assert!(BodyForm::Form.write(&payload(&nothing)).is_err());
        let many_items = format!("{{\"items\":[{items}]}}");
        assert!(BodyForm::Form.write(&payload(&many_items)).is_ok());
    }

    #[test]
    fn two_ways_of_writing_one_payload_give_the_same_bytes() {
        let write = |body| BodyForm::Json.write(&payload(body)).unwrap();
        assert_eq!(write(r#"{"b":1, "a":2}"#), write(r#"{"a":2,"b":1}"#));
    }

    #[test]
    fn fields_are_percent_encoded_and_stay_in_their_place() {
        let url = UrlTemplate::new("https://api.example.com/u/{id}?n={n}").unwrap();
        let filled = url.fill(&payload(r#"{"id":"a/../b?x=1#y","n":5}"#), &[]).unwrap();
        assert_eq!(filled.as_str(), "https://api.example.com/u/a%2F..%2Fb%3Fx%3D1%23y?n=5");
        assert!(url.fill(&payload(r#"{"id":"..","n":5}"#), &[]).is_err());
        // Nothing in a path is another path, as the whole list is not one of its entries.
        assert!(url.fill(&payload(r#"{"id":"","n":5}"#), &[]).is_err());
        let filled = url.fill(&payload(r#"{"id":"a","n":""}"#), &[]).unwrap();
        assert_eq!(filled.as_str(), "https://api.example.com/u/a?n=");
        assert!(url.fill(&payload(r#"{"n":5}"#), &[]).is_err());
        assert!(url.fill(&payload(r#"{"id":{},"n":5}"#), &[]).is_err());
    }

    #[test]
    fn the_host_is_not_for_the_payload_to_choose() {
        for wrong in [
            "https://{host}/x",
            "https://api.{tld}",
            "{url}",
            "https://api.example.com{x}/",
            "ftp://example.com/",
            "/relative",
            "https://example.com/{",
            "https://example.com/{}",
        ] {
            assert!(UrlTemplate::new(wrong).is_err(), "{wrong}");
        }
    }
}
