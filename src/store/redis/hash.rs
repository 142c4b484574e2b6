//! A record as the fields of a hash, and back. Fields that this version does not know are ignored
//! here and kept by updates; a higher layout version is refused.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::protocol::{
    ClaimId, EffectRecord, EpochSeconds, FencingToken, Field, Fingerprint, Output, Record,
    RecordId, Rev, SCHEMA_VERSION, Timestamp,
};
use crate::store::effects::{decode_effects, encode_effects};

/// A field's new value; `None` removes it.
pub(super) type Named = Vec<(&'static str, Option<String>)>;

/// A hash as it is stored.
pub(super) type Hash = HashMap<String, Vec<u8>>;

/// What one field of a record is stored in.
pub(super) fn fields(field: &Field) -> Named {
    let one = |name, value| vec![(name, value)];
    let number = |name, number: u64| vec![(name, Some(number.to_string()))];
    let instant = |name, at: &Option<Timestamp>| vec![(name, at.map(|at| at.millis().to_string()))];
    match field {
        Field::Status(status) => one("status", Some(status.as_str().to_owned())),
        Field::ClaimId(id) => one("claim_id", Some(id.as_str().to_owned())),
        Field::Token(token) => number("token", token.0),
        Field::Rev(rev) => number("rev", rev.0),
        Field::Attempt(attempt) => number("attempt", (*attempt).into()),
        Field::LeaseUntil(at) => number("lease_until", at.millis()),
        Field::NotBefore(at) => instant("not_before", at),
        Field::Fingerprint(print) => {
            one("fingerprint", print.as_ref().map(|print| print.as_str().to_owned()))
        }
        Field::UnrecordedSince(at) => instant("unrecorded_since", at),
        Field::Effects(effects) => one("effects", Some(encode_effects(effects))),
        Field::Output(output) => {
            let stored = match output {
                Some(Output::Stored(json)) => Some(json.clone()),
                _ => None,
            };
            let omitted = matches!(output, Some(Output::Omitted)).then(|| "1".to_owned());
            vec![("output", stored), ("output_omitted", omitted)]
        }
        Field::Error(error) => one("error", error.clone()),
        Field::Quarantine(state) => one("quarantine", state.map(|it| it.as_str().to_owned())),
        Field::CreatedAt(at) => number("created_at", at.millis()),
        Field::UpdatedAt(at) => number("updated_at", at.millis()),
        Field::MessageId(id) => one("message_id", id.clone()),
        Field::ExpiresAt(at) => one("expires_at", at.map(|at| at.secs().to_string())),
    }
}

/// All fields of a new record.
pub(super) fn encode(record: &Record) -> Named {
    let identity = [
        ("key", record.key.clone()),
        ("job", record.job.clone()),
        ("namespace", record.namespace.clone()),
        ("v", SCHEMA_VERSION.to_string()),
    ];
    let identity = identity.into_iter().map(|(name, value)| (name, Some(value)));
    identity.chain(Field::all_of(record).iter().flat_map(fields)).collect()
}

/// A hash as the record `id`.
pub(super) fn decode(id: &RecordId, hash: &Hash) -> Result<Record, Error> {
    let hash = Reader { id, hash };
    let version: u32 = hash.required("v")?;
    if version > SCHEMA_VERSION {
        return Err(hash.fault(format!(
            "layout version {version} is later than {SCHEMA_VERSION}; update this program first"
        )));
    }
    let output = match hash.maybe("output")? {
        Some(json) => Some(Output::Stored(json)),
        None => hash.hash.contains_key("output_omitted").then_some(Output::Omitted),
    };
    Ok(Record {
        id: id.clone(),
        key: hash.required("key")?,
        job: hash.required("job")?,
        namespace: hash.required("namespace")?,
        status: hash.required("status")?,
        claim_id: ClaimId::new(hash.required::<String>("claim_id")?),
        token: FencingToken(hash.required("token")?),
        rev: Rev(hash.required("rev")?),
        attempt: hash.required("attempt")?,
        lease_until: hash.instant("lease_until")?,
        not_before: hash.maybe("not_before")?.map(Timestamp::from_millis),
        fingerprint: hash.maybe::<String>("fingerprint")?.map(Fingerprint::from_stored),
        unrecorded_since: hash.maybe("unrecorded_since")?.map(Timestamp::from_millis),
        effects: hash.effects()?,
        output,
        error: hash.maybe("error")?,
        quarantine: hash.maybe("quarantine")?,
        created_at: hash.instant("created_at")?,
        updated_at: hash.instant("updated_at")?,
        message_id: hash.maybe("message_id")?,
        expires_at: hash.maybe("expires_at")?.map(EpochSeconds::from_secs),
    })
}

/// Reads fields, naming the one that does not fit.
struct Reader<'a> {
    id: &'a RecordId,
    hash: &'a Hash,
}

impl Reader<'_> {
    fn fault(&self, detail: String) -> Error {
        Error::new(ErrorKind::Record, "decode").with_id(self.id).with_detail(detail)
    }

    fn wrong(&self, name: &str) -> Error {
        self.fault(format!("field {name} is missing or of the wrong type"))
    }

    fn maybe<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        let read = |bytes: &Vec<u8>| std::str::from_utf8(bytes).ok()?.parse().ok();
        self.hash.get(name).map(|bytes| read(bytes).ok_or_else(|| self.wrong(name))).transpose()
    }

    fn required<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        self.maybe(name)?.ok_or_else(|| self.wrong(name))
    }

    fn instant(&self, name: &str) -> Result<Timestamp, Error> {
        self.required(name).map(Timestamp::from_millis)
    }

    fn effects(&self) -> Result<BTreeMap<String, EffectRecord>, Error> {
        let text: String = self.required("effects")?;
        decode_effects(&text).ok_or_else(|| self.wrong("effects"))
    }
}

#[cfg(test)]
#[path = "hash_fuzz.rs"]
mod fuzz;
