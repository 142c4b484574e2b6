//! Whatever a queue brings: it is read, or refused with a reason, and hurts nothing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use serde_json::Value;

use super::asked::{Asked, asked};
use super::event::{messages, one_by_one};
use super::message::{AttributeValue, Message};
use super::queue::{Mark, QUARANTINE_ATTRIBUTE, carried};
use super::whole;
use crate::fuzz::fuzz;
use crate::rules::{MessageRules, Unwrap};

/// A reason is a sentence and not a copy of what it is about.
const LONGEST_REASON: usize = 1000;

fn rules() -> Vec<MessageRules> {
    let new = MessageRules::new;
    let key = |body: &Value| body.get("key").cloned().unwrap_or_default();
    vec![
        new(),
        new().unwrap(Unwrap::Envelope).default_job("job"),
        new().unwrap(Unwrap::Sns).unwrap(Unwrap::S3).key_from(key).default_job("job"),
        new().unwrap(Unwrap::EventBridge).key_from(Value::clone).job_from(key),
        new().unwrap(Unwrap::Sns).unwrap(Unwrap::Envelope),
    ]
}

fn is_read_or_refused(message: &Message) {
    for rules in rules() {
        match asked(message, &rules) {
            Asked::Job(delivery) => {
                assert!(!delivery.job.is_empty() && !delivery.key.as_str().is_empty());
                let body = message.body.as_deref().unwrap();
                assert!(delivery.body.len() <= body.len(), "unwrapped, it is no longer");
            }
            Asked::Nothing => assert!(message.body.as_deref().unwrap().contains("s3:TestEvent")),
            Asked::Unclear(why) => {
                assert!(!why.is_empty() && why.len() <= LONGEST_REASON, "{why}");
                is_carried(message, why);
            }
        }
    }
}

/// What goes to quarantine keeps what it had, and a mark that can be read.
fn is_carried(message: &Message, error: String) {
    let cause = "undecodable".to_owned();
    let mark = Mark { job: None, key: None, token: None, cause, error, at: 1 };
    let Ok((body, attributes)) = carried(message, &mark) else {
        return;
    };
    assert_eq!(Some(body), message.body.as_deref());
    assert!(message.attributes.keys().all(|name| attributes.contains_key(name)));
    let AttributeValue::Text(text) = &attributes[QUARANTINE_ATTRIBUTE].value else {
        panic!("the mark is text")
    };
    let is_legal = |c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(text.chars().all(is_legal), "{text:?}");
    let read: Value = serde_json::from_str(text).unwrap();
    assert_eq!(read["error"], mark.error);
}

#[cfg_attr(test, test)]
pub(crate) fn an_event_is_read_or_refused() {
    fuzz("event", |event| {
        if let Some(read) = whole::messages(event) {
            assert!(one_by_one(event).unwrap() == read, "{event}");
        }
        for message in messages(event).into_iter().flatten() {
            assert!(!message.id.is_empty(), "its failure could not be reported");
            let fault = message.fault.as_deref().unwrap_or_default();
            assert!(fault.len() <= LONGEST_REASON, "{fault}");
            is_read_or_refused(&message);
        }
    });
}

#[cfg_attr(test, test)]
pub(crate) fn a_body_is_read_or_refused() {
    fuzz("message", |body| is_read_or_refused(&Message::new("job", "key", body)));
}

#[cfg_attr(test, test)]
pub(crate) fn a_body_that_names_its_own_job_is_read_or_refused() {
    fuzz("message", |body| {
        let body = Some(body.to_owned());
        is_read_or_refused(&Message { id: "m".to_owned(), body, ..Message::default() });
    });
}

/// What is wrong with one record is its own fault.
#[cfg_attr(test, test)]
pub(crate) fn a_records_neighbour_is_read_as_if_it_were_alone() {
    let neighbour = "{\"messageId\":\"neighbour\",\"body\":\"{}\"}";
    let alone = messages(&format!("{{\"Records\":[{neighbour}]}}")).unwrap().remove(0);
    fuzz("message", |body| {
        let record = serde_json::json!({"messageId": "m", "body": body, "attributes": body});
        let event = format!("{{\"Records\":[{record},{neighbour}]}}");
        let read = messages(&event).unwrap();
        assert_eq!(read[0].body.as_deref(), Some(body));
        assert!(read[0].fault.is_some() && read[1] == alone);
    });
}
