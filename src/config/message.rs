//! The `[message]` table, checked and made into rules.

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::expression;
use super::fault::Faults;
use crate::rules::{MessageRules, Unwrap};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageTable {
    unwrap: Option<Spanned<Wrappings>>,
    key: Option<Spanned<String>>,
    job: Option<Spanned<String>>,
    key_attribute: Option<Spanned<String>>,
    job_attribute: Option<Spanned<String>>,
    default_job: Option<Spanned<String>>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "unwrap is text, or a list of texts from the outside in")]
enum Wrappings {
    One(String),
    Several(Vec<String>),
}

impl MessageTable {
    /// The rules, as far as nothing is wrong with them.
    pub fn rules(
        &self,
        is_job: impl Fn(&str) -> bool,
        source: &str,
        faults: &mut Faults,
    ) -> MessageRules {
        let mut found = Found { source, faults };
        let rules = self.unwrapping(MessageRules::new(), &mut found);
        let rules = self.attributes(rules, &mut found);
        let rules = self.expressions(rules, &mut found);
        let Some(name) = &self.default_job else {
            return rules;
        };
        if !is_job(name.get_ref()) {
            found.at(name, |name| {
                format!(
                    "default_job {name:?} is no job of this file; add [job.{name:?}], or name one \
                     that is there"
                )
            });
        }
        rules.default_job(name.get_ref())
    }

    fn unwrapping(&self, mut rules: MessageRules, found: &mut Found<'_>) -> MessageRules {
        let Some(unwrap) = &self.unwrap else {
            return rules;
        };
        let names = match unwrap.get_ref().clone() {
            Wrappings::One(name) => vec![name],
            Wrappings::Several(names) => names,
        };
        for name in names {
            match Unwrap::ALL.into_iter().find(|wrapping| wrapping.name() == name) {
                Some(wrapping) => rules = rules.unwrap(wrapping),
                None => found.at(unwrap, |_| {
                    format!(
                        "unwrap {name:?} is not known; write \"envelope\", \"sns\", \
                         \"eventbridge\" or \"s3\""
                    )
                }),
            }
        }
        rules
    }

    fn attributes(&self, mut rules: MessageRules, found: &mut Found<'_>) -> MessageRules {
        let names = [&self.key_attribute, &self.job_attribute];
        for name in names.into_iter().flatten().filter(|name| !is_attribute(name.get_ref())) {
            found.at(name, |name| {
                format!(
                    "{name:?} is no attribute's name; write one of letters, digits, `_`, `-` and \
                     `.`, such as \"idempotency-key\""
                )
            });
        }
        if let Some(name) = &self.key_attribute {
            rules = rules.key_attribute(name.get_ref());
        }
        if let Some(name) = &self.job_attribute {
            rules = rules.job_attribute(name.get_ref());
        }
        if rules.key_attribute == rules.job_attribute
            && let Some(name) = names.into_iter().flatten().next()
        {
            found.at(name, |_| "key and job cannot be one attribute; name another".to_owned());
        }
        rules
    }

    fn expressions(&self, mut rules: MessageRules, found: &mut Found<'_>) -> MessageRules {
        if let Some(text) = &self.key {
            match expression::compile(text.get_ref()) {
                // What every message without the field would share is no key.
                Ok(derive) if !derive(&Value::Null).is_null() => found.at(text, |_| {
                    "key gives something for a message that has nothing, and all of those would be \
                     one operation; leave the constant or default out"
                        .to_owned()
                }),
                Ok(derive) => {
                    rules = rules.key_from(derive);
                    rules.key_text = Some(text.get_ref().clone());
                }
                Err(why) => found.at(text, |_| not_compiled("key", &why)),
            }
        }
        if let Some(text) = &self.job {
            match expression::compile(text.get_ref()) {
                Ok(derive) => rules = rules.job_from(derive),
                Err(why) => found.at(text, |_| not_compiled("job", &why)),
            }
        }
        rules
    }
}

/// Faults of this table.
struct Found<'a> {
    source: &'a str,
    faults: &'a mut Faults,
}

impl Found<'_> {
    fn at<T>(&mut self, value: &Spanned<T>, text: impl FnOnce(&T) -> String) {
        let text = format!("message: {}", text(value.get_ref()));
        self.faults.add_at(self.source, value.span(), text);
    }
}

fn not_compiled(field: &str, why: &str) -> String {
    format!(
        "{field} is no JMESPath expression: {why}; write one, such as \"detail.id\", and names \
         with other characters as '\"detail-type\"'"
    )
}

fn is_attribute(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=256).contains(&name.len()) && name.chars().all(fits)
}
