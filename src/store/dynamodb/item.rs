//! A record as DynamoDB attributes, and writes as expressions. Every attribute is named once, in
//! `attributes`.

use std::collections::{BTreeMap, HashMap};
use std::iter;
use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::error::{Error, ErrorKind};
use crate::protocol::{
    ClaimId, EffectRecord, EpochSeconds, Expect, FencingToken, Field, Fingerprint, Output, Record,
    RecordId, Rev, SCHEMA_VERSION, Status, Timestamp,
};
use crate::store::Cursor;

pub(super) type Attributes = HashMap<String, AttributeValue>;

/// An expression with its placeholders.
pub(super) struct Expression {
    pub text: String,
    pub names: Option<HashMap<String, String>>,
    pub values: Option<Attributes>,
}

/// An update and the condition it is sent with; the condition carries all placeholders.
pub(super) struct UpdateExpression {
    pub set: String,
    pub condition: Expression,
}

fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The attributes one field is stored in; `None` removes.
pub(super) fn attributes(
    field: &Field,
) -> impl Iterator<Item = (&'static str, Option<AttributeValue>)> + use<> {
    let one = |name, value| ((name, value), None);
    let (first, second) = match field {
        // `parked` is there exactly while the status is one: the index stays sparse.
        Field::Status(status) => (
            ("status", Some(text(status.as_str()))),
            Some(("parked", status.is_parked().then(|| text(status.as_str())))),
        ),
        Field::ClaimId(id) => one("claim_id", Some(text(id.as_str()))),
        Field::Token(token) => one("token", Some(number(token.0))),
        Field::Rev(rev) => one("rev", Some(number(rev.0))),
        Field::Attempt(attempt) => one("attempt", Some(number(attempt))),
        Field::LeaseUntil(at) => one("lease_until", Some(number(at.millis()))),
        Field::NotBefore(at) => one("not_before", at.map(|at| number(at.millis()))),
        Field::Fingerprint(print) => one("fingerprint", print.as_ref().map(|p| text(p.as_str()))),
        Field::UnrecordedSince(at) => one("unrecorded_since", at.map(|at| number(at.millis()))),
        Field::Effects(effects) => one("effects", Some(encode_effects(effects))),
        Field::Output(output) => {
            let stored = match output {
                Some(Output::Stored(json)) => Some(text(json)),
                _ => None,
            };
            let omitted = matches!(output, Some(Output::Omitted));
            let omitted = omitted.then_some(AttributeValue::Bool(true));
            (("output", stored), Some(("output_omitted", omitted)))
        }
        Field::Error(error) => one("error", error.as_ref().map(text)),
        Field::Quarantine(state) => one("quarantine", state.map(|state| text(state.as_str()))),
        Field::CreatedAt(at) => one("created_at", Some(number(at.millis()))),
        Field::UpdatedAt(at) => one("updated_at", Some(number(at.millis()))),
        Field::MessageId(id) => one("message_id", id.as_ref().map(text)),
        Field::ExpiresAt(at) => one("expires_at", at.map(|at| number(at.secs()))),
    };
    iter::once(first).chain(second)
}

fn encode_effects(effects: &BTreeMap<String, EffectRecord>) -> AttributeValue {
    let encode = |effect: &EffectRecord| {
        let mut map = HashMap::from([
            ("state".to_owned(), text(effect.state.as_str())),
            ("generation".to_owned(), number(effect.generation)),
            ("first_sent".to_owned(), number(effect.first_sent.millis())),
        ]);
        let more = [
            ("request", effect.request.as_ref().map(Fingerprint::as_str)),
            ("result", effect.result.as_deref()),
        ];
        for (name, value) in more {
            map.extend(value.map(|value| (name.to_owned(), text(value))));
        }
        AttributeValue::M(map)
    };
    AttributeValue::M(effects.iter().map(|(name, e)| (name.clone(), encode(e))).collect())
}

/// A new record as an item.
pub(super) fn encode(record: &Record) -> Attributes {
    all_of(record).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The attributes of a new record, each once.
pub(super) fn all_of(
    record: &Record,
) -> impl Iterator<Item = (&'static str, AttributeValue)> + use<> {
    let identity = [
        (PK, text(record.id.as_str())),
        ("key", text(&record.key)),
        ("job", text(&record.job)),
        ("namespace", text(&record.namespace)),
        ("v", number(SCHEMA_VERSION)),
    ];
    let fields = Field::all_of(record).into_iter();
    let set = fields.flat_map(|field| attributes(&field));
    identity.into_iter().chain(set.filter_map(|(name, value)| Some((name, value?))))
}

/// The partition key.
pub(super) const PK: &str = "pk";

pub(super) fn pk(id: &RecordId) -> AttributeValue {
    text(id.as_str())
}

/// A record's primary key.
pub(super) fn key(id: &RecordId) -> Attributes {
    key_of(id.as_str().to_owned())
}

/// What the item must show for a write to land; nothing where there must be no item.
pub(super) fn shows(expect: &Expect) -> Vec<(&'static str, AttributeValue)> {
    match expect {
        Expect::Absent => Vec::new(),
        Expect::At { claim_id, rev } => {
            vec![("claim_id", text(claim_id.as_str())), ("rev", number(rev.0))]
        }
    }
}

/// The condition of a write.
pub(super) fn condition(expect: &Expect) -> Expression {
    let asked = shows(expect);
    if asked.is_empty() {
        return Expression {
            text: "attribute_not_exists(#pk)".to_owned(),
            names: Some(HashMap::from([("#pk".to_owned(), PK.to_owned())])),
            values: None,
        };
    }
    let (mut parts, mut names, mut values) = (Vec::new(), HashMap::new(), HashMap::new());
    for (name, value) in asked {
        parts.push(format!("#{name} = :at_{name}"));
        names.insert(format!("#{name}"), name.to_owned());
        values.insert(format!(":at_{name}"), value);
    }
    Expression { text: parts.join(" AND "), names: Some(names), values: Some(values) }
}

/// An update of `fields` under `condition`: sets and removes what is named, leaves the rest.
pub(super) fn update(fields: &[Field], mut condition: Expression) -> UpdateExpression {
    let (mut set, mut remove) = (Vec::new(), Vec::new());
    let names = condition.names.get_or_insert_default();
    let values = condition.values.get_or_insert_default();
    for (name, value) in fields.iter().flat_map(attributes) {
        names.insert(format!("#{name}"), name.to_owned());
        match value {
            Some(value) => {
                values.insert(format!(":{name}"), value);
                set.push(format!("#{name} = :{name}"));
            }
            None => remove.push(format!("#{name}")),
        }
    }
    let clause = |word: &str, parts: Vec<String>| {
        (!parts.is_empty()).then(|| format!("{word} {}", parts.join(", ")))
    };
    let clauses: Vec<_> =
        [clause("SET", set), clause("REMOVE", remove)].into_iter().flatten().collect();
    UpdateExpression { set: clauses.join(" "), condition }
}

/// The query of the sparse index.
pub(super) fn parked(status: Status) -> Expression {
    Expression {
        text: "#parked = :parked".to_owned(),
        names: Some(HashMap::from([("#parked".to_owned(), "parked".to_owned())])),
        values: Some(HashMap::from([(":parked".to_owned(), text(status.as_str()))])),
    }
}

/// The key of the item stored under `pk`.
pub(super) fn key_of(pk: String) -> Attributes {
    HashMap::from([(PK.to_owned(), AttributeValue::S(pk))])
}

pub(super) fn encode_cursor(parked: Status, cursor: &Cursor) -> Attributes {
    HashMap::from([
        (PK.to_owned(), text(cursor.id.as_str())),
        ("parked".to_owned(), text(parked.as_str())),
        ("updated_at".to_owned(), number(cursor.updated_at.millis())),
    ])
}

pub(super) fn decode_cursor(key: &Attributes) -> Result<Cursor, Error> {
    let id = id(key)?;
    let updated_at = Reader { id: &id, attributes: key }.instant("updated_at")?;
    Ok(Cursor { updated_at, id })
}

/// The id an item is stored under.
pub(super) fn id(attributes: &Attributes) -> Result<RecordId, Error> {
    let pk = attributes.get(PK).and_then(|pk| pk.as_s().ok());
    pk.and_then(|pk| RecordId::from_hex(pk)).ok_or_else(|| {
        Error::new(ErrorKind::Record, "decode").with_detail("attribute pk is not a record id")
    })
}

/// Items as records, each by its own key.
pub(super) fn decode_all(items: Option<Vec<Attributes>>) -> Result<Vec<Record>, Error> {
    let items = items.unwrap_or_default();
    items.iter().map(|attributes| decode(&id(attributes)?, attributes)).collect()
}

/// An item as a record. Attributes this version does not know are ignored here and kept by
/// updates; a higher layout version is refused.
pub(super) fn decode(id: &RecordId, attributes: &Attributes) -> Result<Record, Error> {
    let item = Reader { id, attributes };
    let version: u32 = item.number("v")?;
    if version > SCHEMA_VERSION {
        return Err(item.fault(format!(
            "layout version {version} is later than {SCHEMA_VERSION}; update this program first"
        )));
    }
    let output = match item.maybe_text("output")? {
        Some(json) => Some(Output::Stored(json)),
        None => attributes.contains_key("output_omitted").then_some(Output::Omitted),
    };
    Ok(Record {
        id: id.clone(),
        key: item.text("key")?,
        job: item.text("job")?,
        namespace: item.text("namespace")?,
        status: item.name("status")?,
        claim_id: ClaimId::new(item.text("claim_id")?),
        token: FencingToken(item.number("token")?),
        rev: Rev(item.number("rev")?),
        attempt: item.number("attempt")?,
        lease_until: item.instant("lease_until")?,
        not_before: item.maybe_number("not_before")?.map(Timestamp::from_millis),
        fingerprint: item.maybe_text("fingerprint")?.map(Fingerprint::from_stored),
        unrecorded_since: item.maybe_number("unrecorded_since")?.map(Timestamp::from_millis),
        effects: item.effects()?,
        output,
        error: item.maybe_text("error")?,
        quarantine: item.maybe_name("quarantine")?,
        created_at: item.instant("created_at")?,
        updated_at: item.instant("updated_at")?,
        message_id: item.maybe_text("message_id")?,
        expires_at: item.maybe_number("expires_at")?.map(EpochSeconds::from_secs),
    })
}

/// Reads attributes, naming the one that does not fit.
struct Reader<'a> {
    id: &'a RecordId,
    attributes: &'a Attributes,
}

impl Reader<'_> {
    fn fault(&self, detail: String) -> Error {
        Error::new(ErrorKind::Record, "decode").with_id(self.id).with_detail(detail)
    }

    fn wrong(&self, name: &str) -> Error {
        self.fault(format!("attribute {name} is missing or of the wrong type"))
    }

    fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| self.wrong(name))
    }

    fn maybe_text(&self, name: &str) -> Result<Option<String>, Error> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(name)),
        }
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        self.required(name, self.maybe_text(name)?)
    }

    fn maybe_name<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        let text = self.maybe_text(name)?;
        text.map(|text| text.parse().map_err(|_| self.wrong(name))).transpose()
    }

    fn name<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        self.required(name, self.maybe_name(name)?)
    }

    fn maybe_number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(AttributeValue::N(n)) => n.parse().map(Some).map_err(|_| self.wrong(name)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        self.required(name, self.maybe_number(name)?)
    }

    fn instant(&self, name: &str) -> Result<Timestamp, Error> {
        self.number(name).map(Timestamp::from_millis)
    }

    fn effects(&self) -> Result<BTreeMap<String, EffectRecord>, Error> {
        let map = self.attributes.get("effects").and_then(|effects| effects.as_m().ok());
        let map = self.required("effects", map)?;
        map.iter().map(|(name, effect)| Ok((name.clone(), self.effect(effect)?))).collect()
    }

    fn effect(&self, effect: &AttributeValue) -> Result<EffectRecord, Error> {
        let attributes = self.required("effects", effect.as_m().ok())?;
        let effect = Reader { id: self.id, attributes };
        Ok(EffectRecord {
            state: effect.name("state")?,
            generation: effect.number("generation")?,
            first_sent: effect.instant("first_sent")?,
            request: effect.maybe_text("request")?.map(Fingerprint::from_stored),
            result: effect.maybe_text("result")?,
        })
    }
}

#[cfg(test)]
#[path = "item_fuzz.rs"]
mod fuzz;
