//! What a body is wrapped in, taken off. A wrapping that is broken is an error that says how, and
//! never quotes the body.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::{Attribute, AttributeValue, Message};
use crate::rules::{MessageRules, Unwrap};

/// Attributes that the SQS extended client sets on a pointer.
const POINTER_ATTRIBUTES: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// What a pointer's body begins with, today and in the client's first version.
const POINTERS: [&str; 2] = [
    "\"software.amazon.payloadoffloading.PayloadS3Pointer\"",
    "\"com.amazon.sqs.javamessaging.MessageS3Pointer\"",
];

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// A body with its wrapping taken off.
pub(super) struct Opened {
    /// What the job is given.
    pub payload: String,
    /// What rules see, where it is more than the payload.
    whole: Option<String>,
    /// The message's own, and what the wrappings say: the outermost of one name counts.
    pub attributes: BTreeMap<String, Attribute>,
}

/// Takes off what the rules name, from the outside in.
pub(super) fn open(message: &Message, body: &str, rules: &MessageRules) -> Result<Opened, String> {
    let mut opened =
        Opened { payload: body.to_owned(), whole: None, attributes: message.attributes.clone() };
    opened.refuse_pointer()?;
    for wrapping in &rules.unwrap {
        match wrapping {
            Unwrap::Envelope => opened.envelope(rules)?,
            Unwrap::Sns => opened.sns()?,
            Unwrap::EventBridge => opened.eventbridge()?,
            Unwrap::S3 => opened.s3()?,
        }
        opened.refuse_pointer()?;
    }
    Ok(opened)
}

impl Opened {
    /// What rules derive names from: JSON, or else the text as one string.
    pub fn seen(&self) -> Value {
        let text = self.whole.as_ref().unwrap_or(&self.payload);
        serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
    }

    fn envelope(&mut self, rules: &MessageRules) -> Result<(), String> {
        let fields = fields(&self.payload).ok_or(
            "the body is no envelope: it is no JSON object; send {\"job\": .., \
             \"idempotency-key\": .., \"body\": ..}",
        )?;
        let body = *fields.get("body").ok_or("the envelope has no \"body\"; add it")?;
        for (field, attribute) in
            [("idempotency-key", &rules.key_attribute), ("job", &rules.job_attribute)]
        {
            let Some(raw) = fields.get(field).filter(|raw| raw.get() != "null") else {
                continue;
            };
            let value: Option<Value> = serde_json::from_str(raw.get()).ok();
            let name = value.as_ref().and_then(name_of).ok_or_else(|| {
                format!("the envelope's {field:?} is neither text nor a whole number; correct it")
            })?;
            self.attributes.entry(attribute.clone()).or_insert_with(|| Attribute::text(name));
        }
        // A string is the payload itself, as `send` sends it.
        let payload = match body.get().starts_with('"') {
            true => text(body).ok_or("the envelope's \"body\" is no text that can be read")?,
            false => body.get().to_owned(),
        };
        self.becomes(payload, None);
        Ok(())
    }

    fn sns(&mut self) -> Result<(), String> {
        let Some(fields) = fields(&self.payload).filter(|all| all.contains_key("TopicArn")) else {
            return Ok(());
        };
        let get = |name: &str| fields.get(name).and_then(|raw| text(raw));
        match get("Type").as_deref() {
            Some("Notification") => {}
            Some("SubscriptionConfirmation" | "UnsubscribeConfirmation") => {
                return Err("SNS asks to confirm a subscription of this queue; open the \
                            SubscribeURL in the body, or subscribe from the queue's own account"
                    .to_owned());
            }
            _ => return Ok(()),
        }
        let payload = get("Message").ok_or("the SNS notification has no \"Message\" of text")?;
        let given: Option<BTreeMap<String, SnsAttribute>> = match fields.get("MessageAttributes") {
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|_| "the SNS notification's MessageAttributes are not of SNS's shape")?,
            None => None,
        };
        for (name, attribute) in given.unwrap_or_default() {
            let attribute = attribute.decode()?;
            self.attributes.entry(name).or_insert(attribute);
        }
        self.becomes(payload, None);
        Ok(())
    }

    fn eventbridge(&mut self) -> Result<(), String> {
        let event = fields(&self.payload).filter(|all| all.contains_key("detail-type"));
        let detail = event.as_ref().and_then(|event| event.get("detail"));
        let detail = detail.ok_or(
            "the body is no EventBridge event: it has no \"detail-type\" or no \"detail\"; let \
             the rule pass on the matched event as it is, or correct `unwrap`",
        )?;
        let payload = detail.get().to_owned();
        let whole = std::mem::take(&mut self.payload);
        self.becomes(payload, Some(whole));
        Ok(())
    }

    fn s3(&mut self) -> Result<(), String> {
        let notification = fields(&self.payload);
        let records = notification.as_ref().and_then(|all| all.get("Records"));
        let records: Option<Vec<&RawValue>> =
            records.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let record = match records.as_deref() {
            Some([record]) => *record,
            Some([]) | None => {
                return Err("the body is no S3 notification: it has no \"Records\"; correct \
                            `unwrap`, or what sends to this queue"
                    .to_owned());
            }
            Some(several) => {
                return Err(format!(
                    "this S3 notification has {} records, and one message is one job; send each \
                     record as a message of its own",
                    several.len()
                ));
            }
        };
        if !self::fields(record.get()).is_some_and(|all| all.contains_key("s3")) {
            return Err("the notification's record is not of S3; correct `unwrap`".to_owned());
        }
        let payload = record.get().to_owned();
        self.becomes(payload, None);
        Ok(())
    }

    fn becomes(&mut self, payload: String, whole: Option<String>) {
        self.payload = payload;
        self.whole = whole;
    }

    /// The payload of such a message is in a bucket: what is here must not be taken for it.
    fn refuse_pointer(&self) -> Result<(), String> {
        let begins = self.payload.trim_start().strip_prefix('[').map(str::trim_start);
        let is_pointer = POINTER_ATTRIBUTES.iter().any(|name| self.attributes.contains_key(*name))
            || begins.is_some_and(|rest| POINTERS.iter().any(|class| rest.starts_with(class)));
        if is_pointer {
            return Err("this is a pointer of the SQS extended client, whose payload is in S3: \
                        it is not supported; send the payload itself (up to 1 MiB)"
                .to_owned());
        }
        Ok(())
    }
}

/// Text, or a whole number as it is written. A fraction is no name: numbers that differ may read
/// as the same one, also whole ones over 64 bits.
pub(super) fn name_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SnsAttribute {
    r#type: String,
    value: String,
}

impl SnsAttribute {
    fn decode(self) -> Result<Attribute, String> {
        let value = match self.r#type.as_str() {
            "Binary" => AttributeValue::Binary(
                STANDARD
                    .decode(&self.value)
                    .map_err(|_| "a binary attribute of the SNS notification is not base64")?,
            ),
            _ => AttributeValue::Text(self.value),
        };
        Ok(Attribute { data_type: self.r#type, value })
    }
}

fn fields(json: &str) -> Option<Fields<'_>> {
    serde_json::from_str(json).ok()
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}
