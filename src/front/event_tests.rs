//! Events as AWS sends them, and as it does not.

use super::*;

fn one(record: &str) -> Message {
    let mut messages = messages(&format!("{{\"Records\":[{record}]}}")).unwrap();
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

#[test]
fn no_records_are_no_messages() {
    for event in ["{}", "{\"Records\":null}", "{\"Records\":[]}"] {
        assert_eq!(messages(event).unwrap(), [], "{event}");
    }
}

#[test]
fn an_event_of_another_service_is_an_error() {
    for event in [
        "[]",
        "\"text\"",
        "null",
        "{\"Records\":{}}",
        "{\"Records\":[1]}",
        "{\"version\":\"2.0\",\"routeKey\":\"$default\"}",
        "{\"source\":\"aws.events\",\"detail-type\":\"Scheduled Event\"}",
        "{\"Records\":[{\"eventSource\":\"aws:s3\",\"s3\":{}}]}",
        "{\"Records\":[{\"EventSource\":\"aws:sns\",\"Sns\":{\"MessageId\":\"m\"}}]}",
        "{\"Records\":[{\"messageId\":\"m\",\"body\":\"{}\"},{\"eventSource\":\"aws:kinesis\"}]}",
    ] {
        assert!(messages(event).is_err(), "{event}");
    }
}

#[test]
fn a_record_without_message_id_fails_the_invocation() {
    for record in ["{\"body\":\"{}\"}", "{\"messageId\":null}", "{\"messageId\":\"\"}"] {
        let event = format!("{{\"Records\":[{{\"messageId\":\"m\",\"body\":\"{{}}\"}},{record}]}}");
        let error = messages(&event).unwrap_err().to_string();
        assert!(error.contains("messageId"), "{error}");
    }
}

#[test]
fn null_and_absent_fields_are_parsed() {
    let message = one(r#"{"messageId":"m","body":"{}","receiptHandle":null,"attributes":null,
            "messageAttributes":null,"md5OfBody":null,"eventSource":"aws:sqs","awsRegion":null}"#);
    assert_eq!((message.fault, message.receipt), (None, None));
    let message = one(
        r#"{"messageId":"m","body":"{}","attributes":{"SentTimestamp":null,"MessageGroupId":"g"},
            "messageAttributes":{"a":null,"job":{"stringValue":"j","binaryValue":null,
            "stringListValues":[],"binaryListValues":null,"dataType":"String"},
            "empty":{"stringValue":null,"dataType":"String"}}}"#,
    );
    assert_eq!(message.fault, None);
    assert_eq!(message.group.as_deref(), Some("g"));
    assert_eq!(message.attributes.keys().collect::<Vec<_>>(), ["job"]);
}

#[test]
fn one_bad_binary_value_is_its_records_own_fault() {
    let event = r#"{"Records":[
        {"messageId":"bad","body":"{}","messageAttributes":
            {"x":{"binaryValue":"%%%","dataType":"Binary"}}},
        {"messageId":"odd","body":7},
        {"messageId":"none"},
        {"messageId":"good","body":"{}","messageAttributes":
            {"x":{"binaryValue":"AAE=","dataType":"Binary"}}}]}"#;
    let messages = messages(event).unwrap();
    let faults: Vec<_> = messages.iter().map(|m| (m.id.as_str(), m.fault.is_some())).collect();
    assert_eq!(faults, [("bad", true), ("odd", true), ("none", false), ("good", false)]);
    assert_eq!(messages[2].body, None);
}

#[test]
fn what_the_queue_says_of_a_message_is_read() {
    let message = one(r#"{"messageId":"m","receiptHandle":"r","body":"{}",
            "attributes":{"ApproximateReceiveCount":"1","SentTimestamp":"1523232000000"},
            "eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:us-east-1:1:orders.fifo"}"#);
    assert_eq!(message.sent_at, Some(Timestamp::from_millis(1_523_232_000_000)));
    assert_eq!(message.order(), Some(""));
}

#[test]
fn the_trace_is_its_producers_word_or_else_x_rays() {
    let xray = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    let traced = |attributes: &str| {
        one(&format!(
            "{{\"messageId\":\"m\",\"attributes\":{{\"AWSTraceHeader\":\"{xray}\"}},\
             \"messageAttributes\":{{{attributes}}}}}"
        ))
    };
    let trace = |message: Message| message.trace().map(|trace| trace.to_string());
    let by_xray = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01";
    assert_eq!(trace(traced("")).as_deref(), Some(by_xray));
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let attribute = |value: &str| {
        format!("\"traceparent\":{{\"stringValue\":\"{value}\",\"dataType\":\"String\"}}")
    };
    assert_eq!(trace(traced(&attribute(own))).as_deref(), Some(own));
    assert_eq!(trace(traced(&attribute("not one"))).as_deref(), Some(by_xray));
    assert_eq!(trace(one("{\"messageId\":\"m\"}")), None);
}

#[test]
fn in_one_pass_the_same_is_read_and_nothing_that_is_wrong() {
    let record = r#"{"messageId":"m","receiptHandle":"r","body":"a\n\u00e9","awsRegion":"x","odd":[{}],
        "attributes":{"SentTimestamp":"1523232000000","MessageGroupId":"g\t","SenderId":null,
        "AWSTraceHeader":"Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"},
        "messageAttributes":{"job":{"stringValue":"j","dataType":"String"},"no":null,
        "x":{"binaryValue":"AAE=","dataType":"Binary"},"e":{"dataType":"String"}},
        "eventSource":"aws:sqs","eventSourceARN":"arn:aws:sqs:us-east-1:1:orders"}"#;
    let twice = r#"{"messageId":"m","body":"a","body":"b","attributes":{"SentTimestamp":"1"},
        "attributes":{},"messageAttributes":{"a":{"stringValue":"1"},"a":{}}}"#;
    for record in [record, twice, r#"{"messageId":"m","attributes":null,"eventSource":null}"#] {
        let event = format!(" {{\"more\":[1],\"Records\":[{record},{record}]}} ");
        let read = whole::messages(&event).unwrap();
        assert!(read.len() == 2 && read == one_by_one(&event).unwrap(), "{record}");
    }
    for record in [
        r#"["m"]"#,
        r#"{"body":"b"}"#,
        r#"{"messageId":""}"#,
        r#"{"messageId":"m","body":1}"#,
        r#"{"messageId":"m","attributes":{"SenderId":1}}"#,
        r#"{"messageId":"m","messageAttributes":{"x":{"binaryValue":"%%%"}}}"#,
        r#"{"messageId":"m","eventSource":"aws:kinesis"}"#,
    ] {
        assert_eq!(whole::messages(&format!("{{\"Records\":[{record}]}}")), None, "{record}");
    }
    for event in ["[[]]", "{}", "{\"Records\":null}", "{\"Records\":[]} x"] {
        assert_eq!(whole::messages(event), None, "{event}");
    }
}
