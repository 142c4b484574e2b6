//! Whether a key looks like one that is new each time it is made.

use std::fmt;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::key::IdempotencyKey;

/// Why a key is probably no good: it is a bare value that names nothing and looks made on the spot.
/// A producer that makes such a value at each attempt makes each retry a new operation.
///
/// A judgement by looks alone, so it is made for a warning: it may be wrong where an operation is
/// named by a bare id that is kept with it. Any word before that id settles it: `order:ID:charge`
/// is never looked at twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyAdvice {
    /// A UUID of any version, in any of its forms.
    Uuid,
    /// A ULID of our time.
    Ulid,
    /// A point in time, in seconds or milliseconds since 1970 or by ISO 8601.
    Timestamp,
    /// A long hexadecimal number, or the like in base64.
    Token,
}

impl KeyAdvice {
    /// What is to be said of this key, if anything.
    pub fn of(key: &IdempotencyKey) -> Option<Self> {
        let text = bare(key.as_str());
        // Whatever is longer is no id by itself; and this looks at each key that is sent.
        if text.len() > 256 || !text.is_ascii() {
            return None;
        }
        if is_uuid(text) {
            Some(Self::Uuid)
        } else if is_ulid(text) {
            Some(Self::Ulid)
        } else if is_instant(text) {
            Some(Self::Timestamp)
        } else if is_hex(text) || is_base64(text) {
            Some(Self::Token)
        } else {
            None
        }
    }
}

impl fmt::Display for KeyAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looks = match self {
            Self::Uuid => "a bare UUID",
            Self::Ulid => "a bare ULID",
            Self::Timestamp => "a bare point in time",
            Self::Token => "a bare random token",
        };
        write!(
            f,
            "the key looks like {looks}: if it is made anew when the command is sent again, every \
             retry is a new operation and runs; name the operation, as in invoice:42:finalize, or \
             say what a stored id stands for, as in order:ID:charge"
        )
    }
}

/// Without quotes, and the braces and the prefix of a UUID.
fn bare(key: &str) -> &str {
    let mut text = key.trim();
    for (open, close) in [('"', '"'), ('\'', '\''), ('{', '}')] {
        text = text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close)).unwrap_or(text);
    }
    match text.get(..9) {
        Some(urn) if urn.eq_ignore_ascii_case("urn:uuid:") => text.get(9..).unwrap_or_default(),
        _ => text,
    }
}

/// Five groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let groups = text.split('-').map(|group| (group.len(), is_all(group, u8::is_ascii_hexdigit)));
    groups.eq([8, 4, 4, 4, 12].map(|digits| (digits, true)))
}

/// 26 digits of Crockford's base32. Its first ten are milliseconds: `01` are the years 2004 to 2039.
fn is_ulid(text: &str) -> bool {
    let is_digit = |c: &u8| c.is_ascii_alphanumeric() && !b"ILOUilou".contains(c);
    text.len() == 26 && text.starts_with("01") && is_all(text, is_digit) && mixes(text)
}

/// Of these years, and not on a whole minute: that is a slot of a timetable, and names it.
fn is_instant(text: &str) -> bool {
    const YEARS: std::ops::Range<u64> = 1_420_070_400..2_208_988_800; // 2015 to 2039
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if is_all(whole, u8::is_ascii_digit) && fraction.bytes().all(|c| c.is_ascii_digit()) {
        let is_odd = fraction.bytes().any(|c| c != b'0');
        let seconds = match (whole.len(), whole.parse::<u64>()) {
            (10, Ok(seconds)) => Some((seconds, is_odd || seconds % 60 != 0)),
            (13, Ok(ms)) => Some((ms / 1000, is_odd || ms % 60_000 != 0)),
            _ => None,
        };
        return seconds.is_some_and(|(at, is_odd)| YEARS.contains(&at) && is_odd);
    }
    is_iso(text)
}

/// `2026-11-29T10:20:30`, with or without separators, a fraction and a zone; a space for the `T`.
fn is_iso(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else {
        return false;
    };
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    let is_date = digits(date) == 8 && date.bytes().all(|c| c.is_ascii_digit() || c == b'-');
    let clock = time.split(['Z', 'z', '+', '-', ' ']).next().unwrap_or_default();
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    let is_clock = digits(clock) == 6 && clock.bytes().all(|c| c.is_ascii_digit() || c == b':');
    let is_odd = !clock.ends_with("00") || fraction.bytes().any(|c| c != b'0');
    is_date && is_clock && fraction.bytes().all(|c| c.is_ascii_digit()) && is_odd
}

/// 64 bits and more: shorter ones are people's own numbers. Of chance's digits three in eight are
/// letters; an account number has two in front.
fn is_hex(text: &str) -> bool {
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    let is_mixed = letters * 8 >= text.len() && (text.len() - letters) * 8 >= text.len();
    text.len() >= 16 && is_all(text, u8::is_ascii_hexdigit) && is_mixed
}

/// 120 bits and more in base64, or in letters and digits of both cases. Words change between lower
/// case, upper case and digits less often than chance does.
fn is_base64(text: &str) -> bool {
    let text = text.trim_end_matches('=');
    let is_digit = |c: &u8| c.is_ascii_alphanumeric() || b"+/-_".contains(c);
    if text.len() < 20 || !is_all(text, is_digit) {
        return false;
    }
    let class = |c: u8| match c {
        b'a'..=b'z' => Some(0),
        b'A'..=b'Z' => Some(1),
        b'0'..=b'9' => Some(2),
        _ => None,
    };
    let has = |wanted| text.bytes().any(|c| class(c) == Some(wanted));
    let next = text.bytes().skip(1);
    let changes = text.bytes().zip(next).filter(|(a, b)| match (class(*a), class(*b)) {
        (Some(a), Some(b)) => a != b,
        _ => false,
    });
    has(0) && has(1) && has(2) && changes.count() * 5 >= text.len() * 2 && !is_text(text)
}

/// Whether it is readable text in base64, which somebody has encoded and may encode again.
fn is_text(base64: &str) -> bool {
    let lax = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let url_safe = base64.replace('+', "-").replace('/', "_");
    let decoded = GeneralPurpose::new(&URL_SAFE, lax).decode(url_safe);
    let decoded = decoded.ok().and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.is_some_and(|text| !text.chars().any(char::is_control))
}

/// Letters and digits both: a number or a word alone is not a random value.
fn mixes(text: &str) -> bool {
    text.bytes().any(|c| c.is_ascii_digit()) && text.bytes().any(|c| c.is_ascii_alphabetic())
}

fn is_all(text: &str, fits: impl Fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.as_bytes().iter().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advice(key: &str) -> Option<KeyAdvice> {
        KeyAdvice::of(&IdempotencyKey::new(key).unwrap())
    }

    #[test]
    fn a_key_that_looks_random_is_said_to() {
        use KeyAdvice::{Timestamp, Token, Ulid, Uuid};
        for (key, kind) in [
            ("9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d", Uuid),
            ("018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f", Uuid),
            ("9F8B1C2D-3E4F-1A5B-8C6D-7E8F9A0B1C2D", Uuid),
            ("{9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d}", Uuid),
            ("\"9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d\"", Uuid),
            ("urn:uuid:9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d", Uuid),
            ("URN:UUID:9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d", Uuid),
            (" 9f8b1c2d-3e4f-4a5b-8c6d-7e8f9a0b1c2d\n", Uuid),
            ("9f8b1c2d3e4f4a5b8c6d7e8f9a0b1c2d", Token),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", Ulid),
            ("01kb7xq2ej9w2m5s0vd6nyf8ha", Ulid),
            ("1764455551", Timestamp),
            ("1764455551123", Timestamp),
            ("1764455551.123456", Timestamp),
            ("1764455520.5", Timestamp),
            ("2026-11-29T22:32:31Z", Timestamp),
            ("2026-11-29 22:32:31", Timestamp),
            ("2026-11-29T22:32:00.123+01:00", Timestamp),
            ("20261129T223231Z", Timestamp),
            ("2026-11-29T22:32:31.123456-05:00", Timestamp),
            ("4bf92f3577b34da6", Token),
            ("4BF92F3577B34DA6A3CE929D0E0E4736", Token),
            ("507f1f77bcf86cd799439011", Token),
            ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", Token),
            ("V1StGXR8_Z5jdHi6B-myT", Token),
            ("q83vEjRWeJCrze8SNFZ4kA==", Token),
            ("3q2+7wABAgME/P3+/4CBgoM=", Token),
            ("0ujsswThIGTUYm2K8FjOOfXtY1K", Token),
        ] {
            assert_eq!(advice(key), Some(kind), "{key}");
        }
    }

    #[test]
    fn a_key_that_names_something_is_left_alone() {
        for key in [
            "invoice:42:finalize",
            "order-7:reserve",
            "user:018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f:welcome:v1",
            "018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f:welcome",
            "order:01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "report:2026-11-29T22:32:31Z",
            // Days and slots of a timetable.
            "2026-11-29",
            "2026-11",
            "20261129",
            "2026-11-29T22:00:00Z",
            "2026-11-29T22:30Z",
            "1764455520",
            "1764455520000",
            // Numbers that are somebody's own.
            "42",
            "1000000001",
            "4111111111111111",
            "1795234567890123456",
            "00340434161094042557",
            // Words and codes.
            "nightly-report-2026",
            "OrderReserveStock2026Customer7",
            "Customers/42/Invoices/2026-11/Send",
            "Order-2026-Reserve-Stock-7",
            "RefundForInvoice42OfCustomer1001",
            "welcomebackcampaign2026abc",
            "INV-2026-000042",
            "DE89370400440532013000",
            "deadbeefcafe",
            "feedfacedeadbeef",
            "1234567890123456",
            "a1b2c3",
            // base64 of "order:42:finalize:v1" and of "user:1001:welcome".
            "b3JkZXI6NDI6ZmluYWxpemU6djE=",
            "dXNlcjoxMDAxOndlbGNvbWU",
            "köln:42:öffnen",
            "-",
            "{}",
            " ",
        ] {
            assert_eq!(advice(key), None, "{key}");
        }
    }

    #[test]
    fn advice_says_why_and_what_a_good_key_looks_like() {
        let said = KeyAdvice::Uuid.to_string();
        assert!(said.contains("bare UUID") && said.contains("every retry is a new operation"));
        assert!(said.contains("invoice:42:finalize"));
    }

    proptest! {
        /// A name before it settles it, whatever the id is.
        #[test]
        fn a_named_id_draws_nothing(name in "[a-z]{3,12}", id in "[A-Za-z0-9_-]{0,40}") {
            prop_assert_eq!(advice(&format!("{name}:{id}")), None);
        }

        /// Nothing that is read here can break it.
        #[test]
        fn any_text_is_judged(key in "\\PC{1,300}|[0-9TZ:.+ -]{1,40}") {
            let _ = advice(&key);
        }

        #[test]
        fn every_uuid_is_seen(bits in any::<u128>()) {
            let hex = format!("{bits:032x}");
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            prop_assert_eq!(advice(&parts.join("-")), Some(KeyAdvice::Uuid));
        }
    }
}
