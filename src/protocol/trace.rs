//! The trace a message belongs to.

use std::fmt;

/// The message attribute that carries a trace.
pub const ATTRIBUTE_TRACE: &str = "traceparent";

/// A W3C `traceparent`, checked for its form:
/// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceParent(String);

/// A text that is no `traceparent`. It came from outside, so it is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no W3C traceparent (version-trace-parent-flags, in lower-case hex); leave it out")]
pub struct InvalidTraceParent;

impl TraceParent {
    /// Takes what a request's header says. Of a version after 00 more may follow the four fields.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidTraceParent> {
        let text = text.into();
        if is_traceparent(&text) { Ok(Self(text)) } else { Err(InvalidTraceParent) }
    }

    /// What X-Ray's header says, as SQS hands it on: `Root=1-5759e988-bd86..;Parent=53995c3f..;Sampled=1`.
    /// `None` if it names no parent. One that leaves the decision open counts as sampled.
    pub fn from_xray(header: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = header.split(';').filter_map(|field| field.trim().split_once('='));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let (time, rest) = field("Root")?.strip_prefix("1-")?.split_once('-')?;
        let flags = if field("Sampled") == Some("0") { "00" } else { "01" };
        Self::new(format!("00-{time}{rest}-{}-{flags}", field("Parent")?)).ok()
    }

    /// As it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_traceparent(text: &str) -> bool {
    let fields: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, parent, flags, more @ ..] = fields.as_slice() else {
        return false;
    };
    let is_hex = |field: &str, digits| {
        field.len() == digits && field.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_set = |field: &str| field.bytes().any(|c| c != b'0');
    let more_is_fine = match more {
        [] => true,
        [more] => {
            *version != "00" && more.len() <= 256 && more.bytes().all(|c| c.is_ascii_graphic())
        }
        _ => false,
    };
    is_hex(version, 2)
        && *version != "ff"
        && is_hex(trace, 32)
        && is_set(trace)
        && is_hex(parent, 16)
        && is_set(parent)
        && is_hex(flags, 2)
        && more_is_fine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_x_ray_is_a_traceparent_where_it_names_a_parent() {
        let read = |text: &str| TraceParent::from_xray(text).map(|trace| trace.to_string());
        let root = "Root=1-5759e988-bd862e3fe1be46a994272793";
        let is =
            |flags| Some(format!("00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-{flags}"));
        assert_eq!(read(&format!("{root};Parent=53995c3f42cd8ad8;Sampled=1")), is("01"));
        assert_eq!(read(&format!("Sampled=0; Parent=53995c3f42cd8ad8; {root}")), is("00"));
        assert_eq!(read(&format!("{root};Parent=53995c3f42cd8ad8")), is("01"));
        assert_eq!(read(&format!("{root};Parent=53995c3f42cd8ad8;Lineage=a:0")), is("01"));
        for none in ["", root, "Root=1-5759e988;Parent=53995c3f42cd8ad8", "Parent=53995c3f42cd8ad8"]
        {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn a_traceparent_is_checked_for_its_form() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::new(good).unwrap().to_string(), good);
        let later = "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more";
        assert!(TraceParent::new(later).is_ok());
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-\u{1}",
        ] {
            assert_eq!(TraceParent::new(bad), Err(InvalidTraceParent), "{bad}");
        }
    }
}
