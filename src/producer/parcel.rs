//! A message as it goes to the queue, and what SQS would not take.

use std::collections::HashSet;

use crate::protocol::{RecordId, is_xml};

/// A message with its attributes, and all messages of one request: 1 MiB.
pub(super) const MAX_SIZE: usize = 1024 * 1024;
/// The longest delay of one message, in seconds: 15 minutes.
const MAX_DELAY: u64 = 900;

/// What is sent.
pub(crate) struct Parcel {
    /// The digest that stands for the key.
    pub id: Option<RecordId>,
    /// The job, for people.
    pub job: Option<String>,
    pub body: String,
    /// Names and texts.
    pub attributes: Vec<(String, String)>,
    pub group: Option<String>,
    /// Seconds.
    pub delay: Option<u64>,
}

impl Parcel {
    /// As SQS counts: the body, and each attribute's name, type and value.
    pub fn size(&self) -> usize {
        let attribute = |(name, text): &(String, String)| name.len() + "String".len() + text.len();
        self.body.len() + self.attributes.iter().map(attribute).sum::<usize>()
    }

    /// Whether it is of one of these groups.
    pub(super) fn is_of(&self, groups: &HashSet<String>) -> bool {
        self.group.as_ref().is_some_and(|group| groups.contains(group))
    }

    /// What is known to be wrong with it before anybody is asked. One faulty entry may cost its
    /// whole batch, so none is let into one.
    pub fn check(&self, is_fifo: bool) -> Result<(), String> {
        if self.body.is_empty() {
            return Err("its body is empty, which SQS does not take".to_owned());
        }
        let size = self.size();
        if size > MAX_SIZE {
            return Err(format!(
                "it has {size} bytes with its attributes, and SQS takes {MAX_SIZE}; keep the \
                 payload elsewhere and send where it is"
            ));
        }
        if !is_xml(&self.body) {
            return Err("its body has characters that SQS does not take (control characters, \
                        U+FFFE, U+FFFF); escape them"
                .to_owned());
        }
        let names: HashSet<_> = self.attributes.iter().map(|(name, _)| name).collect();
        if names.len() < self.attributes.len() {
            return Err("two of its attributes have one name; name them apart".to_owned());
        }
        for (name, text) in &self.attributes {
            if text.is_empty() || !is_xml(text) {
                return Err(format!(
                    "its attribute {name:?} is empty or has characters that SQS does not take"
                ));
            }
        }
        if self.group.as_ref().is_some_and(|group| !is_group(group)) {
            let rule = "a message group has 1 to 128 letters, digits and punctuation marks";
            return Err(format!("{rule}; this one has not"));
        }
        if is_fifo && self.group.is_none() {
            return Err("this is a FIFO queue, and the message has no group; name what must stay \
                        in order, such as a customer"
                .to_owned());
        }
        if is_fifo && self.id.is_none() {
            return Err("this is a FIFO queue, and without a key the message has nothing to be \
                        deduplicated by"
                .to_owned());
        }
        match self.delay {
            Some(_) if is_fifo => {
                Err("a FIFO queue delays no single message; set the queue's own \
                                       DelaySeconds"
                    .to_owned())
            }
            Some(delay) if delay > MAX_DELAY => {
                Err(format!("a delay of {delay} s is over SQS's limit of {MAX_DELAY} s"))
            }
            _ => Ok(()),
        }
    }
}

fn is_group(group: &str) -> bool {
    (1..=128).contains(&group.len()) && group.bytes().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::IdempotencyKey;

    fn parcel() -> Parcel {
        let key = IdempotencyKey::new("order:1:settle").unwrap();
        Parcel {
            id: Some(RecordId::new("default", "order.settle", &key)),
            job: Some("order.settle".to_owned()),
            body: "{}".to_owned(),
            attributes: vec![("job".to_owned(), "order.settle".to_owned())],
            group: None,
            delay: None,
        }
    }

    #[test]
    fn a_message_may_have_a_mebibyte_with_its_attributes_and_no_byte_more() {
        let around = parcel().size() - 2;
        assert_eq!(around, "jobStringorder.settle".len());
        let full = Parcel { body: "x".repeat(MAX_SIZE - around), ..parcel() };
        assert_eq!(full.check(false), Ok(()));
        let over = Parcel { body: "x".repeat(MAX_SIZE - around + 1), ..parcel() };
        let said = over.check(false).unwrap_err();
        assert!(said.contains("1048577 bytes"), "{said}");
    }

    #[test]
    fn what_sqs_would_not_take_is_not_sent() {
        let attribute = |text: &str| vec![("job".to_owned(), text.to_owned())];
        for (fault, parcel) in [
            ("is empty", Parcel { body: String::new(), ..parcel() }),
            ("characters", Parcel { body: "\u{0}".to_owned(), ..parcel() }),
            ("characters", Parcel { body: "\u{ffff}".to_owned(), ..parcel() }),
            ("\"job\" is empty", Parcel { attributes: attribute(""), ..parcel() }),
            ("\"job\" is empty or", Parcel { attributes: attribute("\u{1}"), ..parcel() }),
            (
                "one name",
                Parcel { attributes: [attribute("a"), attribute("b")].concat(), ..parcel() },
            ),
            ("message group", Parcel { group: Some(String::new()), ..parcel() }),
            ("message group", Parcel { group: Some("a b".to_owned()), ..parcel() }),
            ("message group", Parcel { group: Some("x".repeat(129)), ..parcel() }),
            ("over SQS's limit", Parcel { delay: Some(901), ..parcel() }),
        ] {
            let said = parcel.check(false).unwrap_err();
            assert!(said.contains(fault), "{said}");
        }
        assert_eq!(Parcel { delay: Some(900), ..parcel() }.check(false), Ok(()));
    }

    #[test]
    fn a_fifo_queue_asks_for_more() {
        let grouped = || Parcel { group: Some("customer-7".to_owned()), ..parcel() };
        assert_eq!(grouped().check(true), Ok(()));
        assert!(parcel().check(true).unwrap_err().contains("no group"));
        let delayed = Parcel { delay: Some(1), ..grouped() };
        assert!(delayed.check(true).unwrap_err().contains("DelaySeconds"));
        let keyless = Parcel { id: None, ..grouped() };
        assert!(keyless.check(true).unwrap_err().contains("without a key"));
    }
}
