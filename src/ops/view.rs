//! A record as people and scripts see it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::protocol::{EffectRecord, Output, Record};

/// A record for output: under the names it is stored by, instants in milliseconds, expiry in
/// seconds.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "each is the field of `Record` of the same name")]
pub struct RecordView {
    pub pk: String,
    pub namespace: String,
    pub job: String,
    pub key: String,
    pub status: &'static str,
    pub attempt: u32,
    pub token: u64,
    pub rev: u64,
    pub claim_id: String,
    pub lease_until: u64,
    pub not_before: Option<u64>,
    pub fingerprint: Option<String>,
    pub unrecorded_since: Option<u64>,
    pub effects: BTreeMap<String, EffectView>,
    pub output: Option<String>,
    pub output_omitted: bool,
    pub error: Option<String>,
    pub quarantine: Option<&'static str>,
    pub message_id: Option<String>,
    pub created_at: u64,
    pub updated_at: u64,
    pub expires_at: Option<u64>,
}

/// An effect for output.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "each is the field of `EffectRecord` of the same name")]
pub struct EffectView {
    pub key: String,
    pub state: &'static str,
    pub generation: u64,
    pub first_sent: u64,
    pub request: Option<String>,
    pub result: Option<String>,
}

impl From<Record> for RecordView {
    fn from(record: Record) -> Self {
        let effect = |name: &String, effect: &EffectRecord| EffectView {
            key: record.effect_key(name).to_string(),
            state: effect.state.as_str(),
            generation: effect.generation,
            first_sent: effect.first_sent.millis(),
            request: effect.request.as_ref().map(ToString::to_string),
            result: effect.result.clone(),
        };
        let effects =
            record.effects.iter().map(|(name, e)| (name.clone(), effect(name, e))).collect();
        let (output, output_omitted) = match record.output {
            Some(Output::Stored(json)) => (Some(json), false),
            Some(Output::Omitted) => (None, true),
            None => (None, false),
        };
        Self {
            pk: record.id.to_string(),
            namespace: record.namespace,
            job: record.job,
            key: record.key,
            status: record.status.as_str(),
            attempt: record.attempt,
            token: record.token.0,
            rev: record.rev.0,
            claim_id: record.claim_id.as_str().to_owned(),
            lease_until: record.lease_until.millis(),
            not_before: record.not_before.map(|at| at.millis()),
            fingerprint: record.fingerprint.map(|print| print.to_string()),
            unrecorded_since: record.unrecorded_since.map(|at| at.millis()),
            effects,
            output,
            output_omitted,
            error: record.error,
            quarantine: record.quarantine.map(|state| state.as_str()),
            message_id: record.message_id,
            created_at: record.created_at.millis(),
            updated_at: record.updated_at.millis(),
            expires_at: record.expires_at.map(|at| at.secs()),
        }
    }
}
