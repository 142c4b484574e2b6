//! What a Redis says of how well it keeps what it is given.

use ::redis::Value;

/// How well a Redis keeps records; `None` is what it does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisKeeping {
    /// `maxmemory-policy`: anything but `noeviction` drops records once memory is full.
    pub policy: Option<String>,
    /// `appendonly`: without it a restart forgets what came after the last snapshot, if there are
    /// snapshots.
    pub is_logged: Option<bool>,
    /// How many replicas follow it now.
    pub replicas: Option<u64>,
    /// `min-replicas-to-write`, with a lag: it refuses writes while its replicas are away.
    pub waits_for_replicas: bool,
}

impl RedisKeeping {
    /// Reads the answer to `INFO`.
    pub(super) fn read(info: &Value) -> Self {
        let text = match info {
            Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::VerbatimString { text, .. } => text.clone(),
            _ => String::new(),
        };
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
        };
        Self {
            policy: field("maxmemory_policy").map(str::to_owned),
            is_logged: field("aof_enabled").map(|enabled| enabled == "1"),
            replicas: field("connected_slaves").and_then(|count| count.parse().ok()),
            // Shown only where both settings are above zero.
            waits_for_replicas: field("min_slaves_good_slaves").is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_not_known() {
        assert_eq!(RedisKeeping::read(&Value::Nil), RedisKeeping::default());
        let info = "# Memory\r\nmaxmemory_policy:noeviction\r\naof_enabled:0\r\nconnected_slaves:2\r\n\
                    min_slaves_good_slaves:1\r\n";
        let keeping = RedisKeeping::read(&Value::BulkString(info.as_bytes().to_vec()));
        assert_eq!(keeping.policy.as_deref(), Some("noeviction"));
        assert_eq!((keeping.is_logged, keeping.replicas), (Some(false), Some(2)));
        assert!(keeping.waits_for_replicas);
    }
}
