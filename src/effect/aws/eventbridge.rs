//! The `eventbridge` effect: one event, whose detail is the payload.
//!
//! The detail's field `idempotency-key` is the effect's key, the same each time the event is put;
//! where the payload has a field of that name, it is left as it is. EventBridge itself tells no
//! copies apart. The worker needs `events:PutEvents` on the bus.

use std::time::Duration;

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::config::Region;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::{Asked, refused};
use super::request::{Lazy, region_of};
use super::{Guarantee, KEY, shown};
use crate::context::Context;
use crate::error::HandlerError;
use crate::handler::{Call, Reply};
use crate::payload::Payload;
use crate::protocol::EffectKey;
use crate::sdk::SdkConfig;

/// The name this effect is recorded under, and part of its key.
const NAME: &str = "eventbridge";

/// One event per job.
#[derive(Debug)]
pub struct EventBridgeEffect {
    /// The bus, by name or ARN.
    pub bus: String,
    /// The event's `source`.
    pub source: String,
    /// The event's `detail-type`.
    pub detail_type: String,
    /// Whether the key that it carries is the job's own instead of the effect's.
    pub passes_key: bool,
    /// What may happen after a crash. Keyed needs a key that EventBridge does not know.
    pub guarantee: Guarantee,
    /// The longest that putting it may take.
    pub timeout: Duration,
    client: Lazy<Client>,
}

/// What EventBridge made of it.
#[derive(Serialize, Deserialize)]
struct Put {
    event_id: Option<String>,
}

impl EventBridgeEffect {
    /// Puts events of this source and detail-type on this bus, within ten seconds.
    pub fn new(
        bus: impl Into<String>,
        source: impl Into<String>,
        detail_type: impl Into<String>,
        guarantee: Guarantee,
    ) -> Self {
        Self {
            bus: bus.into(),
            source: source.into(),
            detail_type: detail_type.into(),
            passes_key: false,
            guarantee,
            timeout: Duration::from_secs(10),
            client: Lazy::default(),
        }
    }

    /// Runs the effect for one call.
    pub async fn run(&self, Call { payload, context }: Call) -> Result<Reply, HandlerError> {
        let fields = fields(&payload).map_err(HandlerError::terminal)?;
        let client = match context.outside() {
            Some(_) => None,
            None => Some(self.client.get(&context, self.guarantee, |sdk| self.client(sdk)).await?),
        };
        let put = |key| self.put(&context, client, key, fields);
        let request = payload.canonical();
        let put: Put = self.guarantee.run(&context, NAME, request.as_bytes(), put).await?;
        Ok(Reply::of(&put))
    }

    /// Where the bus is, whatever region the worker is in.
    fn client(&self, sdk: &SdkConfig) -> Client {
        let mut settings = aws_sdk_eventbridge::config::Builder::from(sdk);
        if let Some(region) = region_of(&self.bus) {
            settings.set_region(Some(Region::new(region)));
        }
        Client::from_conf(settings.build())
    }

    async fn put(
        &self,
        context: &Context,
        client: Option<Client>,
        key: EffectKey,
        mut fields: Map<String, Value>,
    ) -> Result<Put, HandlerError> {
        let shown = shown(context, &key, self.passes_key);
        fields.entry(KEY).or_insert_with(|| Value::from(shown));
        let detail = Value::Object(fields).to_string();
        let Some(client) = client else {
            return self.rehearse(context, &key, detail).await;
        };
        let asked = Asked { action: "events:PutEvents", target: &self.bus };
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&self.bus)
            .source(&self.source)
            .detail_type(&self.detail_type)
            .detail(detail)
            .build();
        let request =
            |sent| client.put_events().entries(entry).customize().interceptor(sent).send();
        let answer = asked.send(context, self.timeout, request).await?;
        // An answer of 200 may have refused the only entry.
        let entry = answer.entries.unwrap_or_default().into_iter().next();
        match entry.as_ref().map(|entry| (entry.event_id(), entry.error_code())) {
            Some((Some(id), None)) => Ok(Put { event_id: Some(id.to_owned()) }),
            Some((_, Some(code))) => Err(refused(&asked, code, status_of(code))),
            _ if answer.failed_entry_count == 0 => Ok(Put { event_id: None }),
            _ => Err(refused(&asked, "", None)),
        }
    }

    async fn rehearse(
        &self,
        context: &Context,
        key: &EffectKey,
        detail: String,
    ) -> Result<Put, HandlerError> {
        if let Some(receiver) = context.outside() {
            let bus = self.bus.rsplit('/').next().unwrap_or_default();
            self.guarantee.rehearse(context, receiver, (NAME, bus), key, detail).await?;
        }
        Ok(Put { event_id: None })
    }
}

/// An entry has no status of its own: an internal failure says nothing about what has happened,
/// every other code that the entry was refused.
fn status_of(code: &str) -> Option<u16> {
    match code {
        "InternalException" | "InternalFailure" | "ServiceUnavailable" => None,
        _ => Some(400),
    }
}

/// The payload's fields: EventBridge takes nothing but an object.
fn fields(payload: &Payload) -> Result<Map<String, Value>, String> {
    match payload.value() {
        Some(Value::Object(fields)) => Ok(fields.clone()),
        _ => Err("an event's detail is a JSON object, and the payload is none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Said;

    #[test]
    fn an_entry_that_is_refused_has_done_nothing_and_one_that_failed_inside_may_have() {
        let asked = Asked { action: "events:PutEvents", target: "bus" };
        let said = |code| refused(&asked, code, status_of(code)).said();
        for code in ["MalformedDetail", "NotAuthorizedForSourceException", "ThrottlingException"] {
            assert_eq!(said(code), Said::NotSent, "{code}");
        }
        assert_eq!(said("InternalFailure"), Said::Nothing);
    }
}
