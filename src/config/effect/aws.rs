//! What the tables of the effects that call AWS have in common.

use std::time::Duration;

use crate::effect::aws::{FIFO_WINDOW, Guarantee, is_fifo};
use crate::effect::template::Template;

/// A guarantee by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Keyed,
    AtLeastOnce,
    AtMostOnce,
}

pub(super) const AT_LEAST_ONCE: (&str, Given, &str) =
    ("at-least-once", Given::AtLeastOnce, "rare duplicates are acceptable");

pub(super) const AT_MOST_ONCE: (&str, Given, &str) =
    ("at-most-once", Given::AtMostOnce, "what may have happened is left to a person");

/// A text that the payload has no part in: it says where things go.
pub(super) fn fixed(field: &str, text: Option<&str>, example: &str) -> Result<String, String> {
    match text.filter(|text| !text.trim().is_empty()) {
        None => Err(format!("no {field} is given; add {field} = \"{example}\"")),
        Some(text) if text.contains(['{', '}']) => Err(format!(
            "{field} is {text:?}, and where things go is not for the payload to choose; write it out"
        )),
        Some(text) => Ok(text.to_owned()),
    }
}

/// The same, where it may be left out.
pub(super) fn fixed_if_given(
    field: &str,
    text: Option<&str>,
    example: &str,
) -> Result<Option<String>, String> {
    text.map(|text| fixed(field, Some(text), example)).transpose()
}

/// A text with fields.
pub(super) fn template(field: &str, text: Option<&str>) -> Result<Option<Template>, String> {
    let read = |text| Template::new(text).map_err(|error| format!("{field}: {error}"));
    text.map(read).transpose()
}

/// Whether the body is taken as it is.
pub(super) fn is_raw(body: Option<&str>) -> Result<bool, String> {
    match body {
        None | Some("json") => Ok(false),
        Some("raw") => Ok(true),
        Some(other) => Err(format!("body {other:?} is not known; write \"json\" or \"raw\"")),
    }
}

/// What says how long a key is known, and by whom.
pub(super) struct Known<'a> {
    pub deduplicated_by: Option<&'a str>,
    pub key_window: Option<Duration>,
}

impl Known<'_> {
    /// The guarantee of a message to this queue or topic, if it is known which.
    pub fn guarantee(
        &self,
        given: Given,
        what: &str,
        name: Option<&str>,
    ) -> Result<Guarantee, String> {
        match (given, self.deduplicated_by) {
            (Given::Keyed, Some("consumer")) => Ok(Guarantee::Keyed { window: self.key_window }),
            (Given::Keyed, Some(other)) => Err(format!(
                "deduplicated_by {other:?} is not known; write \"consumer\", if whoever receives the \
                 messages runs each idempotency-key once, or leave it out for a FIFO {what}"
            )),
            (Given::Keyed, None) if name.is_some_and(|name| !is_fifo(name)) => Err(format!(
                "a standard {what} remembers no key and cannot give guarantee \"keyed\" by itself; \
                 add deduplicated_by = \"consumer\" if whoever receives the messages runs each \
                 idempotency-key once, take a FIFO {what}, or write \"at-least-once\""
            )),
            (Given::Keyed, None) if self.key_window.is_some() => Err(format!(
                "a FIFO {what} remembers a key for five minutes, whatever key_window says; remove \
                 it, or add deduplicated_by = \"consumer\""
            )),
            (Given::Keyed, None) => Ok(Guarantee::Keyed { window: Some(FIFO_WINDOW) }),
            _ if self.deduplicated_by.is_some() => {
                Err(only_keyed("deduplicated_by and key_window"))
            }
            _ => without_key(given, self.key_window),
        }
    }
}

/// A guarantee whose key is known elsewhere, for as long as `key_window` says.
pub(super) fn guarantee(given: Given, key_window: Option<Duration>) -> Result<Guarantee, String> {
    match given {
        Given::Keyed => Ok(Guarantee::Keyed { window: key_window }),
        _ => without_key(given, key_window),
    }
}

fn without_key(given: Given, key_window: Option<Duration>) -> Result<Guarantee, String> {
    match given {
        _ if key_window.is_some() => Err(only_keyed("key_window")),
        Given::AtMostOnce => Ok(Guarantee::AtMostOnce),
        Given::AtLeastOnce | Given::Keyed => Ok(Guarantee::AtLeastOnce),
    }
}

fn only_keyed(fields: &str) -> String {
    format!("{fields} go with guarantee = \"keyed\"; change the guarantee, or remove them")
}

/// A group, which what is first in, first out needs: it is what stays in order.
pub(super) fn group(
    text: Option<&str>,
    what: &str,
    name: Option<&str>,
) -> Result<Option<Template>, String> {
    if text.is_none() && name.is_some_and(is_fifo) {
        return Err(format!(
            "a FIFO {what} needs to know which messages stay in order; add group = \
             \"{{customer_id}}\", or another field"
        ));
    }
    template("group", text)
}
