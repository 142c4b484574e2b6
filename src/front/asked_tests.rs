//! What messages of other services ask for, by each set of rules.

use super::super::message::Attribute;
use super::*;
use crate::rules::{ATTRIBUTE_JOB, ATTRIBUTE_KEY, Unwrap};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/", $name)).trim_end()
    };
}

/// What fixtures of an order carry.
const ORDER: &str = r#"{"order":{"id":"o-1001","total":4990},"currency":"eur"}"#;

fn message(body: &str, attributes: &[(&str, &str)]) -> Message {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), Attribute::text(*value));
    Message {
        id: "m".to_owned(),
        body: Some(body.to_owned()),
        attributes: attributes.iter().map(text).collect(),
        ..Message::default()
    }
}

fn job(message: &Message, rules: &MessageRules) -> (String, String, String) {
    match asked(message, rules) {
        Asked::Job(delivery) => {
            (delivery.job, delivery.key.as_str().to_owned(), delivery.body.clone())
        }
        Asked::Nothing => panic!("it asks for nothing"),
        Asked::Unclear(why) => panic!("unclear: {why}"),
    }
}

fn unclear(message: &Message, rules: &MessageRules) -> String {
    match asked(message, rules) {
        Asked::Unclear(why) => why,
        Asked::Job(delivery) => panic!("{delivery:?}"),
        Asked::Nothing => panic!("it asks for nothing"),
    }
}

fn unwrapping(wrapping: Unwrap) -> MessageRules {
    MessageRules::new().unwrap(wrapping)
}

/// Rules that find the key at a path, and give every message one job.
fn keyed_at(rules: MessageRules, path: &'static str) -> MessageRules {
    rules
        .key_from(move |body| body.pointer(path).cloned().unwrap_or(Value::Null))
        .default_job("order.place")
}

fn order(key: &str) -> (String, String, String) {
    ("order.place".to_owned(), key.to_owned(), ORDER.to_owned())
}

const NAMED: [(&str, &str); 2] = [(ATTRIBUTE_KEY, "by hand"), (ATTRIBUTE_JOB, "order.place")];

#[test]
fn a_plain_message_is_named_by_its_attributes_and_its_body_is_the_payload() {
    let plain = message(fixture!("plain.json"), &NAMED);
    assert_eq!(job(&plain, &MessageRules::new()), order("by hand"));
}

#[test]
fn the_attributes_may_have_other_names() {
    let rules = MessageRules::new().key_attribute("dedupe").job_attribute("task");
    let other = message(ORDER, &[("dedupe", "k"), ("task", "order.place")]);
    assert_eq!(job(&other, &rules), order("k"));
    let why = unclear(&message(ORDER, &NAMED), &rules);
    assert!(why.contains("\"dedupe\""), "{why}");
}

#[test]
fn an_envelope_names_job_and_key_and_carries_the_payload() {
    let rules = unwrapping(Unwrap::Envelope);
    let json = message(fixture!("envelope.json"), &[]);
    assert_eq!(job(&json, &rules), order("order:1001:place"));
    let (_, key, payload) = job(&message(fixture!("envelope_text.json"), &[]), &rules);
    assert_eq!((key.as_str(), payload.as_str()), ("1001", "sku;count\nA-7;2\n"));
}

#[test]
fn attributes_beat_the_envelope_and_the_envelope_beats_expressions() {
    let rules = keyed_at(unwrapping(Unwrap::Envelope), "/order/id").default_job("other");
    let both = message(fixture!("envelope.json"), &[(ATTRIBUTE_KEY, "by hand")]);
    assert_eq!(job(&both, &rules), order("by hand"));
    assert_eq!(job(&message(fixture!("envelope.json"), &[]), &rules), order("order:1001:place"));
    let bare = message(&format!("{{\"body\":{ORDER}}}"), &[(ATTRIBUTE_JOB, "order.place")]);
    assert_eq!(job(&bare, &rules), order("o-1001"));
}

#[test]
fn an_sns_notification_is_unwrapped_with_its_attributes() {
    let rules = unwrapping(Unwrap::Sns);
    let notification = message(fixture!("sns_notification.json"), &[]);
    assert_eq!(job(&notification, &rules), order("order:1001:place"));
    let outer = message(fixture!("sns_notification.json"), &[(ATTRIBUTE_KEY, "by hand")]);
    assert_eq!(job(&outer, &rules), order("by hand"));
}

#[test]
fn raw_delivery_of_sns_passes_through() {
    let rules = keyed_at(unwrapping(Unwrap::Sns), "/order/id");
    assert_eq!(job(&message(ORDER, &NAMED), &rules), order("by hand"));
    assert_eq!(job(&message(ORDER, &[]), &rules), order("o-1001"));
    let wrapped = message(fixture!("sns_plain_notification.json"), &[]);
    assert_eq!(job(&wrapped, &rules), order("o-1001"));
    let text = job(&message("just text", &NAMED), &rules);
    assert_eq!(text.2, "just text");
}

#[test]
fn an_eventbridge_event_gives_its_detail_and_names_from_the_whole() {
    let rules = keyed_at(unwrapping(Unwrap::EventBridge), "/id")
        .job_from(|event| event["detail-type"].clone())
        .default_job("other");
    let event = message(fixture!("eventbridge.json"), &[]);
    assert_eq!(job(&event, &rules), order("53dc4d37-cffa-4f76-80c9-8b7d4a4d2eaa"));
}

#[test]
fn an_s3_notification_gives_its_one_record() {
    let rules = keyed_at(unwrapping(Unwrap::S3), "/s3/object/sequencer");
    let put = message(fixture!("s3_put.json"), &[]);
    let (_, key, payload) = job(&put, &rules);
    assert_eq!(key, "0055AED6DCD90281E5");
    assert!(payload.starts_with("{\"eventVersion\":\"2.1\""), "{payload}");
    let by_sns = keyed_at(unwrapping(Unwrap::Sns).unwrap(Unwrap::S3), "/s3/object/sequencer");
    let wrapped = message(fixture!("sns_s3_put.json"), &[]);
    assert_eq!(job(&wrapped, &by_sns), ("order.place".to_owned(), key, payload));
}

#[test]
fn an_s3_notification_of_several_records_is_refused_by_name() {
    let rules = keyed_at(unwrapping(Unwrap::S3), "/s3/object/sequencer");
    let why = unclear(&message(fixture!("s3_two_records.json"), &NAMED), &rules);
    assert!(why.contains("2 records") && !why.contains("Face"), "{why}");
}

#[test]
fn a_test_event_asks_for_nothing_whatever_is_unwrapped() {
    let all = Unwrap::ALL.map(|wrapping| keyed_at(unwrapping(wrapping), "/RequestId"));
    for rules in all.into_iter().chain([MessageRules::new()]) {
        for body in [fixture!("s3_test_event.json"), fixture!("sns_s3_test_event.json")] {
            assert!(matches!(asked(&message(body, &[]), &rules), Asked::Nothing), "{rules:?}");
        }
    }
    // A key says that somebody wants it run.
    let keyed = job(&message(fixture!("s3_test_event.json"), &NAMED), &MessageRules::new());
    assert_eq!(keyed.1, "by hand");
}

#[test]
fn a_pointer_of_the_extended_client_is_refused_by_name() {
    let pointer = fixture!("extended_client_pointer.json");
    let in_sns = serde_json::json!({
        "Type": "Notification", "TopicArn": "arn", "Message": pointer,
    });
    let first = "[ \"com.amazon.sqs.javamessaging.MessageS3Pointer\", {}]";
    for body in [pointer, first, &in_sns.to_string()] {
        let why = unclear(&message(body, &NAMED), &unwrapping(Unwrap::Sns));
        assert!(why.contains("extended client") && !why.contains("demo-bucket"), "{why}");
    }
    for attribute in ["ExtendedPayloadSize", "SQSLargePayloadSize"] {
        let [key, job] = NAMED;
        let sized = message(ORDER, &[key, job, (attribute, "300000")]);
        assert!(unclear(&sized, &MessageRules::new()).contains("extended client"));
    }
}

#[test]
fn a_subscription_to_confirm_is_refused_by_name() {
    let body = fixture!("sns_confirmation.json");
    let why = unclear(&message(body, &[]), &unwrapping(Unwrap::Sns));
    assert!(why.contains("SubscribeURL") && !why.contains("Token="), "{why}");
}

#[test]
fn a_broken_wrapping_says_what_is_broken_and_quotes_nothing() {
    let sns = |more: &str| format!("{{\"Type\":\"Notification\",\"TopicArn\":\"4242\"{more}}}");
    let deep = format!("{{\"body\":1,\"job\":{}4242{}}}", "[".repeat(500), "]".repeat(500));
    let cases = [
        (Unwrap::Envelope, deep, "\"job\" is neither"),
        (Unwrap::Envelope, "{\"body\":\"4242\\ud800\"}".to_owned(), "\"body\" is no text"),
        (Unwrap::Envelope, "4242".to_owned(), "no JSON object"),
        (Unwrap::Envelope, "{\"card\":4242".to_owned(), "no JSON object"),
        (Unwrap::Envelope, "{\"card\":4242}".to_owned(), "no \"body\""),
        (Unwrap::Envelope, "{\"body\":4242,\"job\":[4242]}".to_owned(), "\"job\" is neither"),
        (
            Unwrap::Envelope,
            "{\"body\":1,\"idempotency-key\":4242.5}".to_owned(),
            "\"idempotency-key\" is neither",
        ),
        (Unwrap::Sns, sns(""), "no \"Message\""),
        (Unwrap::Sns, sns(",\"Message\":{\"card\":4242}"), "no \"Message\""),
        (
            Unwrap::Sns,
            sns(",\"Message\":\"\",\"MessageAttributes\":{\"a\":4242}"),
            "MessageAttributes",
        ),
        (
            Unwrap::Sns,
            sns(",\"Message\":\"\",\"MessageAttributes\":{\"a\":{\"Type\":\"Binary\",\
                \"Value\":\"4242%\"}}"),
            "not base64",
        ),
        (Unwrap::EventBridge, "{\"detail\":4242}".to_owned(), "no EventBridge event"),
        (Unwrap::EventBridge, "{\"detail-type\":\"4242\"}".to_owned(), "no EventBridge event"),
        (Unwrap::EventBridge, "4242".to_owned(), "no EventBridge event"),
        (Unwrap::S3, "4242".to_owned(), "no \"Records\""),
        (Unwrap::S3, "{\"Records\":[]}".to_owned(), "no \"Records\""),
        (Unwrap::S3, "{\"Records\":[4242]}".to_owned(), "not of S3"),
    ];
    for (wrapping, body, said) in cases {
        let rules = unwrapping(wrapping).default_job("order.place");
        let why = unclear(&message(&body, &[]), &rules);
        assert!(why.contains(said) && !why.contains("4242"), "{body}: {why}");
    }
}

#[test]
fn what_is_no_text_and_no_whole_number_is_no_key() {
    let rules = keyed_at(MessageRules::new(), "/id");
    for id in ["null", "\"\"", "{}", "[1]", "true", "1.0", "1e3", "123456789012345678901234567890"]
    {
        let why = unclear(&message(&format!("{{\"id\":{id}}}"), &[]), &rules);
        assert!(why.contains("gives no text or whole number"), "{id}: {why}");
        assert!(!why.contains("12345"), "{why}");
    }
    for (id, key) in [("7", "7"), ("-7", "-7"), ("18446744073709551615", "18446744073709551615")] {
        assert_eq!(job(&message(&format!("{{\"id\":{id}}}"), &[]), &rules).1, key);
    }
    assert_eq!(job(&message("{\"id\":\" x \"}", &[]), &rules).1, " x ");
}

#[test]
fn a_name_that_is_given_but_empty_or_binary_is_not_replaced() {
    let rules = keyed_at(MessageRules::new(), "/order/id");
    let why = unclear(&message(ORDER, &[(ATTRIBUTE_KEY, "")]), &rules);
    assert!(why.contains("key is empty"), "{why}");
    let why = unclear(&message(ORDER, &[(ATTRIBUTE_JOB, "")]), &rules);
    assert!(why.contains("names the job"), "{why}");
    let mut binary = message(ORDER, &[]);
    let value = AttributeValue::Binary(vec![1]);
    let attribute = Attribute { data_type: "Binary".to_owned(), value };
    binary.attributes.insert(ATTRIBUTE_KEY.to_owned(), attribute);
    let why = unclear(&binary, &rules);
    assert!(why.contains("is binary"), "{why}");
}

#[test]
fn text_is_seen_as_one_string_and_a_rule_that_panics_is_one_messages_trouble() {
    let rules = MessageRules::new().key_from(Value::clone).default_job("order.place");
    assert_eq!(job(&message("line 7", &[]), &rules).1, "line 7");
    let rules = MessageRules::new().key_from(|_| panic!("a bug in a rule"));
    let why = unclear(&message(ORDER, &[]), &rules);
    assert!(why.contains("panicked"), "{why}");
}
