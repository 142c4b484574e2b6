//! Redis' errors as ours: what is certain, and all the rest.

use ::redis::{ErrorKind as Kind, RedisError, ServerErrorKind};

use crate::error::{Error, ErrorKind};

/// An error of `operation`. Only what is certain is for good: all else leaves open whether what was
/// sent has landed, and may pass by itself.
///
/// The server's own words are left out, but for their first, its code: they may quote what it was
/// sent.
pub(super) fn fault(operation: &'static str, error: &RedisError) -> Error {
    if let Some(advice) = for_good(error) {
        return Error::new(ErrorKind::StoreRefused, operation).with_detail(advice);
    }
    let made = Error::new(ErrorKind::StoreUnavailable, operation);
    match (error.kind(), error.code()) {
        (Kind::Io, _) => made.with_detail(format!("no answer: {error}")),
        (_, Some(code)) => made.with_detail(format!("Redis answered {}", short(code))),
        _ => made.with_detail(error.category().to_owned()),
    }
}

/// What stays wrong until somebody does something, and what that is.
fn for_good(error: &RedisError) -> Option<&'static str> {
    let said = error.detail().unwrap_or_default();
    Some(match (error.kind(), error.code()) {
        (Kind::AuthenticationFailed, _) | (_, Some("WRONGPASS" | "NOAUTH")) => {
            "the user or password is wrong; correct ONLYONCE_STORE"
        }
        (_, Some("NOPERM")) => {
            "this user may not do what the scripts do; allow EVALSHA, SCRIPT LOAD, INFO, hashes, \
             sorted sets, expiry and TIME on keys that begin with {onlyonce}:, and what is staged"
        }
        (_, Some("WRONGTYPE")) => "a key that begins with {onlyonce}: is not the store's own",
        (_, Some("CROSSSLOT")) => {
            "on Redis Cluster every staged key must hold the hash tag {onlyonce}"
        }
        (Kind::InvalidClientConfig, _) => "ONLYONCE_STORE cannot be used; see its form in the docs",
        (_, Some("ERR")) if said.starts_with("unknown command") => {
            "the server does not know a command; Redis 6.2, Valkey 7.2 or later is needed"
        }
        (_, Some("ERR")) if said.starts_with("DB index is out of range") => {
            "there is no database of this number; correct ONLYONCE_STORE"
        }
        _ => return None,
    })
}

/// A code is one short word; a proxy may say anything.
fn short(code: &str) -> &str {
    let is_code = code.len() <= 24 && code.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_code { code } else { "an error" }
}

/// Whether the connection is not worth keeping: it broke, it did not answer, or it leads to a server
/// that is no longer the one to write to.
pub(super) fn is_broken(error: &RedisError) -> bool {
    match error.kind() {
        Kind::Server(kind) => {
            matches!(kind, ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        }
        Kind::Extension => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use ::redis::parse_redis_value;

    use super::*;

    fn answered(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn only_what_is_certain_is_for_good() {
        for (line, kind) in [
            ("WRONGPASS invalid username-password pair", ErrorKind::StoreRefused),
            ("NOAUTH Authentication required.", ErrorKind::StoreRefused),
            ("NOPERM this user has no permissions", ErrorKind::StoreRefused),
            (
                "ERR unknown command 'EVALSHA', with args beginning with: 'x'",
                ErrorKind::StoreRefused,
            ),
            ("WRONGTYPE Operation against a key", ErrorKind::StoreRefused),
            ("CROSSSLOT Keys in request don't hash to the same slot", ErrorKind::StoreRefused),
            ("OOM command not allowed", ErrorKind::StoreUnavailable),
            ("READONLY You can't write against a read only replica.", ErrorKind::StoreUnavailable),
            ("LOADING Redis is loading the dataset", ErrorKind::StoreUnavailable),
            ("CLUSTERDOWN The cluster is down", ErrorKind::StoreUnavailable),
            ("MISCONF Errors writing to the AOF file", ErrorKind::StoreUnavailable),
            ("NOREPLICAS Not enough good replicas to write.", ErrorKind::StoreUnavailable),
            ("BUSY Redis is busy running a script", ErrorKind::StoreUnavailable),
            ("MOVED 1 127.0.0.1:1", ErrorKind::StoreUnavailable),
            ("TRYAGAIN Multiple keys request", ErrorKind::StoreUnavailable),
            ("ERR max number of clients reached", ErrorKind::StoreUnavailable),
            ("ERR what a proxy says", ErrorKind::StoreUnavailable),
        ] {
            assert_eq!(fault("commit", &answered(line)).kind(), kind, "{line}");
        }
    }

    #[test]
    fn the_servers_words_are_not_repeated() {
        for line in [
            "ERR unknown command 'X', with args beginning with: 'user:ada'",
            "ERR user:ada",
            "user:ada is odd",
        ] {
            let said = fault("commit", &answered(line)).to_string();
            assert!(!said.contains("ada"), "{said}");
        }
    }

    #[test]
    fn a_connection_to_a_replica_is_given_up_and_one_that_refuses_is_kept() {
        assert!(is_broken(&answered("READONLY You can't write")));
        assert!(is_broken(&std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
        assert!(!is_broken(&answered("OOM command not allowed")));
        assert!(!is_broken(&answered("NOPERM no")));
    }
}
