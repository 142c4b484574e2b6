//! The ten questions that every queue of jobs should answer, each with a verdict.

use serde::Serialize;

use super::facts::{Deployment, Jobs};
use super::finding::{Finding, Severity};
use super::rules::shown;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Holds,
    Fails,
    CannotJudge,
}

impl Verdict {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::CannotJudge => "cannot judge",
        }
    }
}

/// One point, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub point: usize,
    pub question: &'static str,
    pub verdict: Verdict,
    pub why: String,
}

/// Says why a point holds, where no finding speaks against it; or that it cannot be told.
type Holds = fn(&Jobs) -> Result<String, String>;

/// A question, the findings that speak against it, and what speaks for it.
struct Question(&'static str, &'static [&'static str], Holds);

const QUESTIONS: [Question; 10] = [
    Question(
        "Can every job run twice and harm nothing: no money, no stock, no message?",
        &[
            "table-missing",
            "key-schema",
            "store-not-set-up",
            "store-not-kept",
            "redis-evicts",
            "redis-not-persistent",
            "redis-replicas-unconfirmed",
            "global-table",
            "namespace-shared",
            "settings-faulty",
        ],
        |jobs| {
            in_rust(jobs)?;
            let again = with(jobs, "at-least-once");
            Ok(match again.is_empty() {
                true => "a copy finds what the first one did".to_owned(),
                false => format!(
                    "a copy finds what the first one did; after a crash {} may run again, as declared",
                    again.join(", ")
                ),
            })
        },
    ),
    Question(
        "Is a message's key made before it is sent, and sent along with it?",
        &["key-from-message-id", "key-from-event-id", "key-unstable"],
        |jobs| {
            Ok(match &jobs.key_expression {
                None => format!(
                    "it comes in the attribute {}; a message without one never runs",
                    jobs.key_attribute
                ),
                Some(text) => format!(
                    "it comes in the attribute {}, or by {text} from the message; one without never \
                     runs",
                    jobs.key_attribute
                ),
            })
        },
    ),
    Question(
        "Is no key made at random inside a job?",
        &["key-from-message-id", "key-unstable"],
        |_| Ok("the worker makes no key: an effect's is derived from its message's".to_owned()),
    ),
    Question(
        "Is there a record of each effect?",
        &[
            "table-missing",
            "key-schema",
            "permission-missing",
            "store-not-set-up",
            "store-not-kept",
        ],
        |_| Ok("each key has a record, and each effect its own place in it".to_owned()),
    ),
    Question(
        "Do calls of providers send a key that stays the same?",
        &["key-window-short"],
        |jobs| {
            in_rust(jobs)?;
            let (keyed, without) = (with(jobs, "keyed"), with(jobs, "at-least-once"));
            Ok(format!("with a key: {}; without one: {}", list(&keyed), list(&without)))
        },
    ),
    Question(
        "Is a copy held off while its job runs, and after it is completed?",
        &[
            "visibility-under-timeout",
            "visibility-short",
            "table-missing",
            "key-schema",
            "global-table",
            "namespace-shared",
        ],
        |_| {
            Ok("a claim is one conditional write, held by a lease; what is completed stays so"
                .to_owned())
        },
    ),
    Question(
        "Are records kept for longer than a message can come late?",
        &["retention-short", "ttl-other-attribute", "redis-evicts"],
        |jobs| {
            let least = jobs.jobs.iter().filter_map(|job| job.retention).min();
            Ok(match least {
                None => "records are kept for ever".to_owned(),
                Some(least) => format!(
                    "records are kept for {} at least, longer than both queues keep messages; a \
                     redrive by hand begins that time anew",
                    shown(least)
                ),
            })
        },
    ),
    Question(
        "Does a message that always fails end where people see it, and not go round for ever?",
        &[
            "no-dlq",
            "max-receive-low",
            "max-receive-under-attempts",
            "dlq-retention-short",
            "dlq-type-differs",
            "dlq-url-missing",
            "dlq-url-other",
            "partial-failures-off",
        ],
        |_| Ok("attempts are counted, and what is given up is in the dead-letter queue".to_owned()),
    ),
    Question(
        "Can it be said in a sentence what follows a crash between an effect and the acknowledgement?",
        &[],
        |jobs| {
            in_rust(jobs)?;
            let told = CLASSES.iter().filter_map(|(class, what)| {
                let named = with(jobs, class);
                (!named.is_empty()).then(|| format!("{} {what}", named.join(", ")))
            });
            Ok(told.collect::<Vec<_>>().join("; "))
        },
    ),
    Question("Were copies under load tried in staging?", &[], |_| {
        Err("no setting shows it: play `onlyonce drill --queue-url URL` there".to_owned())
    }),
];

const CLASSES: [(&str, &str); 5] = [
    ("transactional", "happened together with the completion, or not at all"),
    ("keyed", "is sent again under the same key, once at its provider"),
    ("reconcile", "is sent again if its provider says that it was not done"),
    ("at-least-once", "runs again, a rare duplicate"),
    ("at-most-once", "is parked as unknown, for a person"),
];

/// The jobs of a guarantee.
fn with(jobs: &Jobs, guarantee: &str) -> Vec<String> {
    let named = jobs.jobs.iter().filter(|job| job.guarantee.as_deref() == Some(guarantee));
    named.map(|job| job.name.clone()).collect()
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// What jobs in Rust do is said in their code alone.
fn in_rust(jobs: &Jobs) -> Result<(), String> {
    match jobs.jobs.iter().find(|job| job.guarantee.is_none()) {
        Some(job) => Err(format!("job {:?} declares its effects in Rust", job.name)),
        None => Ok(()),
    }
}

/// The ten points, for these deployments and what was found in them.
pub fn checklist(deployments: &[Deployment], findings: &[Finding]) -> Vec<Point> {
    let jobs = deployments.first().map(|it| it.jobs.told());
    let point = |(at, Question(question, codes, holds)): (usize, &Question)| {
        let of_it = || findings.iter().filter(|it| codes.contains(&it.code));
        let told = |severities: &[Severity]| {
            let found = of_it().filter(|it| severities.contains(&it.severity));
            let mut texts: Vec<_> = found.map(|it| it.what.clone()).collect();
            texts.dedup();
            (!texts.is_empty()).then(|| texts.join("; "))
        };
        let against = told(&[Severity::Fault, Severity::Warning]);
        let open = told(&[Severity::CannotJudge]);
        let (verdict, why) = match (against, open, &jobs) {
            (Some(why), ..) => (Verdict::Fails, why),
            (None, Some(why), _) => (Verdict::CannotJudge, why),
            (None, None, Some(Ok(Some(jobs)))) => match holds(jobs) {
                Ok(why) => (Verdict::Holds, why),
                Err(why) => (Verdict::CannotJudge, why),
            },
            (None, None, Some(Err(why))) => (Verdict::CannotJudge, why.0.clone()),
            (None, None, _) => (Verdict::CannotJudge, "no jobs are known".to_owned()),
        };
        Point { point: at + 1, question, verdict, why }
    };
    QUESTIONS.iter().enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::doctor::rules;

    #[test]
    fn every_code_of_a_question_is_a_rules() {
        for Question(_, codes, _) in &QUESTIONS {
            for code in *codes {
                assert!(rules::codes().any(|it| it == *code), "{code}");
            }
        }
    }
}
