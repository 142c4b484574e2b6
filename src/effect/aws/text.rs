//! What AWS takes as a group and as a subject.

use crate::effect::template::Template;
use crate::payload::Payload;

/// A message group: 1 to 128 letters, digits and punctuation.
pub(super) fn group(template: &Template, payload: &Payload) -> Result<String, String> {
    let group = template.fill(payload, "group")?;
    let fits = (1..=128).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        Ok(group)
    } else {
        Err("the group must come to 1 to 128 letters, digits and punctuation of ASCII, without \
             spaces; choose a field that does"
            .to_owned())
    }
}

/// A mail's subject, as SNS takes it: up to 100 printable characters of ASCII, none of them first
/// that is no letter, digit or punctuation.
pub(super) fn subject(template: &Template, payload: &Payload) -> Result<String, String> {
    let subject = template.fill(payload, "subject")?;
    let is_printable = subject.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    let begins = subject.bytes().next().is_some_and(|b| b.is_ascii_graphic());
    if is_printable && begins && subject.len() <= 100 {
        Ok(subject)
    } else {
        Err("the subject must come to 1 to 100 printable characters of ASCII, and not begin with \
             a space; shorten it, or leave out the field that does not fit"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_a_subject_are_what_aws_takes() {
        let of = |check: fn(&Template, &Payload) -> Result<String, String>, text: &str| {
            let payload = Payload::json(serde_json::json!({ "x": text }).to_string()).unwrap();
            check(&Template::new("{x}").unwrap(), &payload).is_ok()
        };
        for (text, is_group, is_subject) in [
            ("customer-7", true, true),
            ("a b", false, true),
            (" a", false, false),
            ("", false, false),
            ("é", false, false),
            ("a\nb", false, false),
            (&"x".repeat(101), true, false),
            (&"x".repeat(129), false, false),
        ] {
            assert_eq!((of(group, text), of(subject, text)), (is_group, is_subject), "{text:?}");
        }
    }
}
