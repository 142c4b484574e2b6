//! What an invocation comes from: a queue, the stream of an outbox, or a schedule.

use serde::Deserialize;

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A queue; what is nothing else is taken for one, and refused there by name.
    Queue,
    /// The stream of an outbox's table.
    Stream,
    /// A schedule that asks for a sweep: `{"onlyonce": "sweep"}`.
    Schedule,
}

#[derive(Deserialize)]
struct Seen {
    onlyonce: Option<String>,
    #[serde(rename = "Records", default)]
    records: Vec<From>,
}

#[derive(Deserialize)]
struct From {
    #[serde(rename = "eventSource")]
    source: Option<String>,
}

impl Source {
    /// The source of an event.
    pub fn of(event: &str) -> Self {
        // A batch of a queue is large, and is not read twice.
        let is_ours = ["\"aws:dynamodb\"", "\"sweep\""].iter().any(|text| event.contains(text));
        // An array would be read as the fields in their order.
        if !is_ours || !event.trim_start().starts_with('{') {
            return Self::Queue;
        }
        let Ok(Seen { onlyonce, records }) = serde_json::from_str(event) else {
            return Self::Queue;
        };
        let first = records.first().and_then(|record| record.source.as_deref());
        match (onlyonce.as_deref(), first) {
            (Some("sweep"), None) => Self::Schedule,
            (_, Some("aws:dynamodb")) => Self::Stream,
            _ => Self::Queue,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_where_it_comes_from() {
        for (event, source) in [
            (r#"{"Records":[{"eventSource":"aws:sqs","body":"{}"}]}"#, Source::Queue),
            (r#"{"Records":[{"eventSource":"aws:dynamodb","dynamodb":{}}]}"#, Source::Stream),
            (r#"{"onlyonce":"sweep"}"#, Source::Schedule),
            (r#"{"onlyonce":"sweep","Records":[{"eventSource":"aws:sqs"}]}"#, Source::Queue),
            (
                r#"{"Records":[{"eventSource":"aws:sqs","messageAttributes":
                    {"from":{"stringValue":"aws:dynamodb"}}}]}"#,
                Source::Queue,
            ),
            (r#"{"onlyonce":"dance"}"#, Source::Queue),
            (r#"["sweep"]"#, Source::Queue),
            ("", Source::Queue),
        ] {
            assert_eq!(Source::of(event), source, "{event}");
        }
    }
}
