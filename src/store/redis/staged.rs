//! What commits along with a record in Redis itself.

use std::collections::BTreeMap;

use super::{LARGEST, PREFIX};
use crate::error::{Error, ErrorKind};
use crate::store::StagedWrite;

/// One write of a key of your own that commits together with the completion, or not at all.
///
/// It runs in the script that writes the record. Conditions are looked at before anything is
/// written; one that does not hold refuses the completion, as a row's does. A key of the wrong
/// type is such a condition: Redis takes nothing back, so nothing may fail half-way. Several writes
/// of one key come one after another.
///
/// What a failover loses, it loses together with the record: see [`RedisStore`](super::RedisStore).
/// On Redis Cluster the key must hold the hash tag `{onlyonce}`, as in `stock:{onlyonce}:cup`.
///
/// ```
/// use onlyonce::store::StagedWrite;
/// use onlyonce::store::redis::RedisWrite;
///
/// let take = RedisWrite::Add { key: "stock:cup".into(), by: -1, floor: Some(0) };
/// assert_eq!(StagedWrite::from(take).form(), "redis::RedisWrite");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisWrite {
    /// `SET`: whatever was there before.
    Set {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// `SET`; refused if there is such a key.
    SetIfAbsent {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// `INCRBY`; refused if the sum would fall below `floor`, if the value is no whole number, or
    /// past 2^53, where a script no longer counts exactly. A key that is not there counts as 0.
    Add {
        /// The key.
        key: String,
        /// What is added; negative takes away.
        by: i64,
        /// The least it may come to.
        floor: Option<i64>,
    },
    /// `HSET`: sets these fields and leaves the rest; refused if the key is no hash.
    HashSet {
        /// The key.
        key: String,
        /// The fields; at least one, at most 1,000.
        fields: BTreeMap<String, String>,
    },
    /// `XADD` under an id of Redis' own; refused if the key is no stream.
    StreamAdd {
        /// The key.
        key: String,
        /// The entry; at least one field, at most 1,000.
        fields: BTreeMap<String, String>,
    },
    /// `DEL`; refused if there is no such key.
    Delete {
        /// The key.
        key: String,
    },
}

pub(super) const NATIVE: &str = "redis::RedisWrite";

/// A script's call takes 8,000 words at most, and must not fail half-way.
const MAX_FIELDS: usize = 1000;

impl From<RedisWrite> for StagedWrite {
    fn from(write: RedisWrite) -> Self {
        Self::Native { form: NATIVE, value: Box::new(write) }
    }
}

/// A staged write as the script reads it.
#[derive(Debug)]
pub(super) struct Step {
    pub key: String,
    pub form: &'static str,
    pub args: Vec<String>,
}

impl Step {
    /// The staged write as a step, or why it cannot be one.
    pub fn of(staged: &StagedWrite) -> Result<Self, Error> {
        let form = staged.form();
        let StagedWrite::Native { value, .. } = staged else {
            return Err(refuse(format!(
                "Redis takes {NATIVE}, not {form}; rows need a store that has tables: dynamodb://, \
                 postgres:// or sqlite:"
            )));
        };
        let write = value.downcast_ref::<RedisWrite>();
        let write = write.ok_or_else(|| {
            refuse(format!("Redis takes {NATIVE}, not {form}; SQL needs postgres:// or sqlite:"))
        })?;
        write.check()?;
        Ok(write.step())
    }
}

impl RedisWrite {
    fn step(&self) -> Step {
        let flat = |fields: &BTreeMap<String, String>| {
            fields.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect()
        };
        let (form, args) = match self {
            Self::Set { value, .. } => ("set", vec![value.clone()]),
            Self::SetIfAbsent { value, .. } => ("set-if-absent", vec![value.clone()]),
            Self::Add { by, floor, .. } => {
                let floor = floor.map(|floor| floor.to_string());
                ("add", [Some(by.to_string()), floor].into_iter().flatten().collect())
            }
            Self::HashSet { fields, .. } => ("hash-set", flat(fields)),
            Self::StreamAdd { fields, .. } => ("stream-add", flat(fields)),
            Self::Delete { .. } => ("delete", Vec::new()),
        };
        Step { key: self.key().to_owned(), form, args }
    }

    fn key(&self) -> &str {
        match self {
            Self::Set { key, .. }
            | Self::SetIfAbsent { key, .. }
            | Self::Add { key, .. }
            | Self::HashSet { key, .. }
            | Self::StreamAdd { key, .. }
            | Self::Delete { key } => key,
        }
    }

    fn check(&self) -> Result<(), Error> {
        // Keys may name a customer: they are not quoted.
        match self {
            _ if self.key().is_empty() => Err(refuse("a write of Redis without a key".to_owned())),
            _ if self.key().starts_with(PREFIX) => {
                Err(refuse(format!("keys that begin with {PREFIX} are the store's own")))
            }
            Self::HashSet { fields, .. } | Self::StreamAdd { fields, .. }
                if fields.is_empty() || fields.len() > MAX_FIELDS =>
            {
                Err(refuse(format!("{} fields; give 1 to {MAX_FIELDS}", fields.len())))
            }
            Self::Add { by, floor, .. }
                if [*by, floor.unwrap_or(0)].iter().any(|n| n.unsigned_abs() > LARGEST) =>
            {
                Err(refuse(format!("a script of Redis counts to {LARGEST} only")))
            }
            _ => Ok(()),
        }
    }
}

fn refuse(detail: String) -> Error {
    Error::new(ErrorKind::Staged, "stage").with_detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::RowWrite;

    #[test]
    fn what_the_script_could_not_do_is_refused_when_it_is_staged() {
        let key = || "k".to_owned();
        let many = (0..=1000).map(|n| (n.to_string(), String::new())).collect();
        let refused = [
            (RedisWrite::Delete { key: String::new() }, "without a key"),
            (RedisWrite::Delete { key: format!("{PREFIX}record:1") }, "the store's own"),
            (RedisWrite::HashSet { key: key(), fields: BTreeMap::new() }, "0 fields"),
            (RedisWrite::StreamAdd { key: key(), fields: many }, "1001 fields"),
            (RedisWrite::Add { key: key(), by: i64::MIN, floor: None }, "counts to"),
            (RedisWrite::Add { key: key(), by: 1, floor: Some(1 << 53) }, "counts to"),
        ];
        for (write, why) in refused {
            let error = Step::of(&write.into()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Staged);
            assert!(error.to_string().contains(why), "{error}");
        }
        let row = RowWrite::DeleteIf {
            table: "stock".to_owned(),
            key: [("sku".to_owned(), "cup".into())].into(),
            values: BTreeMap::new(),
        };
        let error = Step::of(&row.into()).unwrap_err().to_string();
        assert!(error.contains("not RowWrite") && error.contains(NATIVE), "{error}");
    }

    #[test]
    fn a_write_is_read_by_the_script_as_it_was_meant() {
        let add = RedisWrite::Add { key: "k".to_owned(), by: -2, floor: Some(0) };
        let step = Step::of(&add.into()).unwrap();
        assert_eq!((step.key.as_str(), step.form), ("k", "add"));
        assert_eq!(step.args, ["-2", "0"]);
    }
}
