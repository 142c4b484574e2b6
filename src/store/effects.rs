//! Effects as one text, for stores whose fields hold no maps.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::protocol::{EffectRecord, Fingerprint, Timestamp};

pub(super) fn encode_effects(effects: &BTreeMap<String, EffectRecord>) -> String {
    let encode = |effect: &EffectRecord| {
        let mut fields = json!({
            "state": effect.state.as_str(),
            "generation": effect.generation,
            "first_sent": effect.first_sent.millis(),
        });
        let more = [
            ("request", effect.request.as_ref().map(Fingerprint::as_str)),
            ("result", effect.result.as_deref()),
        ];
        if let Some(map) = fields.as_object_mut() {
            for (name, value) in more {
                map.extend(value.map(|value| (name.to_owned(), value.into())));
            }
        }
        fields
    };
    let effects: Map<_, _> = effects.iter().map(|(name, it)| (name.clone(), encode(it))).collect();
    Value::Object(effects).to_string()
}

/// The effects as they were written; `None` if the text says anything else.
pub(super) fn decode_effects(text: &str) -> Option<BTreeMap<String, EffectRecord>> {
    let Ok(Value::Object(map)) = serde_json::from_str(text) else {
        return None;
    };
    map.into_iter().map(|(name, effect)| Some((name, decode(&effect)?))).collect()
}

fn decode(effect: &Value) -> Option<EffectRecord> {
    let maybe_text = |name| match effect.get(name) {
        None => Some(None),
        Some(text) => text.as_str().map(|text| Some(text.to_owned())),
    };
    Some(EffectRecord {
        state: effect.get("state")?.as_str()?.parse().ok()?,
        generation: effect.get("generation")?.as_u64()?,
        first_sent: Timestamp::from_millis(effect.get("first_sent")?.as_u64()?),
        request: maybe_text("request")?.map(Fingerprint::from_stored),
        result: maybe_text("result")?,
    })
}
