//! Columns as a record. Columns this version does not know are ignored here and kept by updates;
//! a higher layout version is refused.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::protocol::{
    ClaimId, EffectRecord, EpochSeconds, FencingToken, Fingerprint, Output, Record, RecordId, Rev,
    SCHEMA_VERSION, Timestamp,
};
use crate::store::effects::decode_effects;

/// A row of the table, whichever database it is in.
pub(in crate::store) trait StoredRow {
    /// The column as text.
    fn text(&self, name: &str) -> Result<Option<String>, WrongColumn>;
    /// The column as a whole number.
    fn integer(&self, name: &str) -> Result<Option<i64>, WrongColumn>;
}

/// There is no such column, or it is of another type.
pub(in crate::store) struct WrongColumn;

pub(in crate::store) fn decode(row: &dyn StoredRow) -> Result<Record, Error> {
    let pk = row.text("pk").ok().flatten();
    let id = pk.and_then(|pk| RecordId::from_hex(&pk)).ok_or_else(|| {
        Error::new(ErrorKind::Record, "decode").with_detail("column pk is not a record id")
    })?;
    let columns = Reader { id: &id, row };
    let version: u32 = columns.number("v")?;
    if version > SCHEMA_VERSION {
        return Err(columns.fault(format!(
            "layout version {version} is later than {SCHEMA_VERSION}; update this program first"
        )));
    }
    let output = match columns.text("output")? {
        Some(json) => Some(Output::Stored(json)),
        None => columns.integer("output_omitted")?.map(|_| Output::Omitted),
    };
    Ok(Record {
        key: columns.required("key")?,
        job: columns.required("job")?,
        namespace: columns.required("namespace")?,
        status: columns.name("status")?,
        claim_id: ClaimId::new(columns.required("claim_id")?),
        token: FencingToken(columns.number("token")?),
        rev: Rev(columns.number("rev")?),
        attempt: columns.number("attempt")?,
        lease_until: columns.instant("lease_until")?,
        not_before: columns.maybe_number("not_before")?.map(Timestamp::from_millis),
        fingerprint: columns.text("fingerprint")?.map(Fingerprint::from_stored),
        unrecorded_since: columns.maybe_number("unrecorded_since")?.map(Timestamp::from_millis),
        effects: columns.effects()?,
        output,
        error: columns.text("error")?,
        quarantine: columns.maybe_name("quarantine")?,
        created_at: columns.instant("created_at")?,
        updated_at: columns.instant("updated_at")?,
        message_id: columns.text("message_id")?,
        expires_at: columns.maybe_number("expires_at")?.map(EpochSeconds::from_secs),
        id: id.clone(),
    })
}

/// Reads columns, naming the one that does not fit.
struct Reader<'a> {
    id: &'a RecordId,
    row: &'a dyn StoredRow,
}

impl Reader<'_> {
    fn fault(&self, detail: String) -> Error {
        Error::new(ErrorKind::Record, "decode").with_id(self.id).with_detail(detail)
    }

    fn wrong(&self, name: &str) -> Error {
        self.fault(format!("column {name} is missing or of the wrong type"))
    }

    fn text(&self, name: &str) -> Result<Option<String>, Error> {
        self.row.text(name).map_err(|WrongColumn| self.wrong(name))
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Error> {
        self.row.integer(name).map_err(|WrongColumn| self.wrong(name))
    }

    fn required(&self, name: &str) -> Result<String, Error> {
        self.text(name)?.ok_or_else(|| self.wrong(name))
    }

    fn maybe_name<T: FromStr>(&self, name: &str) -> Result<Option<T>, Error> {
        let text = self.text(name)?;
        text.map(|text| text.parse().map_err(|_| self.wrong(name))).transpose()
    }

    fn name<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        self.maybe_name(name)?.ok_or_else(|| self.wrong(name))
    }

    fn maybe_number<T: TryFrom<i64>>(&self, name: &str) -> Result<Option<T>, Error> {
        let number = self.integer(name)?;
        number.map(|number| number.try_into().map_err(|_| self.wrong(name))).transpose()
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, Error> {
        self.maybe_number(name)?.ok_or_else(|| self.wrong(name))
    }

    fn instant(&self, name: &str) -> Result<Timestamp, Error> {
        self.number(name).map(Timestamp::from_millis)
    }

    fn effects(&self) -> Result<BTreeMap<String, EffectRecord>, Error> {
        let text = self.required("effects")?;
        decode_effects(&text).ok_or_else(|| self.wrong("effects"))
    }
}
