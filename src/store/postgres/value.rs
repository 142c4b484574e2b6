//! Values of statements, on the way there and back.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Write;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::store::sql::{SqlValue, StoredRow, WrongColumn};

/// Sent as text, so that it becomes whatever its place asks for.
impl ToSql for SqlValue {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Integer(number) => write!(out, "{number}")?,
            Self::Real(number) if number.is_infinite() => {
                out.write_str(if *number > 0.0 { "Infinity" } else { "-Infinity" })?;
            }
            Self::Real(number) => write!(out, "{number}")?,
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Blob(bytes) => {
                out.write_str("\\x")?;
                for byte in bytes {
                    write!(out, "{byte:02x}")?;
                }
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// The values with their types left to the server.
pub(super) fn typeless(values: &[SqlValue]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

/// Stands before what stands for another character. No text has it but by accident: it is no
/// character.
const MARK: char = '\u{ffff}';

/// A text as Postgres can store it, which is any text without U+0000; a key may have that, and the
/// words of an error.
pub(super) fn storable(value: SqlValue) -> SqlValue {
    match value {
        SqlValue::Text(text) if text.contains(['\0', MARK]) => {
            SqlValue::Text(text.replace(MARK, "\u{ffff}1").replace('\0', "\u{ffff}0"))
        }
        value => value,
    }
}

fn as_written(stored: &str) -> Option<Cow<'_, str>> {
    if !stored.contains(MARK) {
        return Some(Cow::Borrowed(stored));
    }
    let mut text = String::with_capacity(stored.len());
    let mut rest = stored.chars();
    while let Some(character) = rest.next() {
        text.push(match character {
            MARK => match rest.next()? {
                '0' => '\0',
                '1' => MARK,
                _ => return None,
            },
            character => character,
        });
    }
    Some(Cow::Owned(text))
}

impl StoredRow for Row {
    fn text(&self, name: &str) -> Result<Option<String>, WrongColumn> {
        let stored: Option<&str> = self.try_get(name).map_err(|_| WrongColumn)?;
        stored.map(|text| as_written(text).map(Cow::into_owned).ok_or(WrongColumn)).transpose()
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, WrongColumn> {
        let number: Option<Whole> = self.try_get(name).map_err(|_| WrongColumn)?;
        Ok(number.map(|Whole(number)| number))
    }
}

/// A whole number of any width, or a truth value as one.
struct Whole(i64);

impl<'a> FromSql<'a> for Whole {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *of {
            Type::BOOL => bool::from_sql(of, raw)?.into(),
            Type::INT4 => i32::from_sql(of, raw)?.into(),
            _ => i64::from_sql(of, raw)?,
        }))
    }

    fn accepts(of: &Type) -> bool {
        matches!(*of, Type::BOOL | Type::INT4 | Type::INT8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_stored_and_read_back_as_it_was() {
        for text in ["", "a", "\0", "\u{ffff}", "\u{ffff}0\0\u{ffff}", "a\0b\u{fffe}", "\u{ffff}1"]
        {
            let SqlValue::Text(stored) = storable(text.into()) else { panic!("not a text") };
            assert!(!stored.contains('\0'), "{stored:?}");
            assert_eq!(as_written(&stored).unwrap(), text);
        }
        for foreign in ["\u{ffff}", "\u{ffff}2"] {
            assert_eq!(as_written(foreign), None);
        }
    }

    #[test]
    fn a_value_is_sent_as_it_would_be_written() {
        let sent = |value: SqlValue| {
            let mut out = BytesMut::new();
            value.to_sql(&Type::UNKNOWN, &mut out).unwrap();
            String::from_utf8(out.to_vec()).unwrap()
        };
        assert_eq!(sent((-5).into()), "-5");
        assert_eq!(sent(0.1.into()), "0.1");
        assert_eq!(sent(f64::NEG_INFINITY.into()), "-Infinity");
        assert_eq!(sent(f64::NAN.into()), "NaN");
        assert_eq!(sent(vec![0, 0xab].into()), "\\x00ab");
        assert_eq!(sent(true.into()), "1");
    }
}
