//! The rules: from what is known of a deployment to what is wrong with it. No rule asks anybody.

mod function;
mod jobs;
mod permissions;
mod queue;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::facts::Deployment;
use super::finding::{Finding, Said, Severity};
use super::known::Untold;

/// What a rule says of a deployment; or why nothing can be said.
type Judged = Result<Vec<Said>, Untold>;

struct Rule {
    code: &'static str,
    severity: Severity,
    /// Why it bites.
    why: &'static str,
    judge: fn(&Deployment) -> Judged,
}

const fn fault(code: &'static str, why: &'static str, judge: fn(&Deployment) -> Judged) -> Rule {
    Rule { code, severity: Severity::Fault, why, judge }
}

const fn warning(code: &'static str, why: &'static str, judge: fn(&Deployment) -> Judged) -> Rule {
    Rule { code, severity: Severity::Warning, why, judge }
}

/// All of them, in the order in which they are told.
const RULES: &[Rule] = &[
    fault(
        "visibility-under-timeout",
        "messages come back, and count a receive, while their batch still runs",
        queue::visibility_under_timeout,
    ),
    fault(
        "visibility-short",
        "a throttled batch is retried inside that time: its messages come back meanwhile, count \
         receives, and end in the dead-letter queue without having run",
        queue::visibility_short,
    ),
    fault(
        "no-dlq",
        "a message that always fails comes back until its retention is over, and is then lost unseen",
        queue::no_dlq,
    ),
    fault(
        "max-receive-low",
        "throttles and waiting for a busy key count as receives: good messages are given up",
        queue::max_receive_low,
    ),
    warning(
        "max-receive-under-attempts",
        "SQS gives a message up before its job's attempts are spent, without saying why it failed",
        queue::max_receive_under_attempts,
    ),
    fault(
        "dlq-retention-short",
        "a message keeps the age it had in the queue, and may expire as soon as it is dead",
        queue::dlq_retention_short,
    ),
    fault("dlq-type-differs", "SQS cannot move the messages there", queue::dlq_type_differs),
    warning(
        "dlq-url-missing",
        "what fails for good is received again until SQS gives it up, and its cause is not kept with it",
        queue::dlq_url_missing,
    ),
    warning(
        "dlq-url-other",
        "dead messages are in two queues: an alarm, and `onlyonce dlq`, look at one of them",
        queue::dlq_url_other,
    ),
    fault(
        "partial-failures-off",
        "one failure brings the whole batch back, and what the worker reports is deleted as done",
        function::partial_failures_off,
    ),
    fault(
        "batch-without-window",
        "Lambda takes more than 10 messages a batch only with a window",
        function::batch_without_window,
    ),
    fault(
        "concurrency-under-maximum",
        "the poller receives more than the function may run: throttled messages count receives",
        function::concurrency_under_maximum,
    ),
    warning(
        "job-timeout-over-function",
        "the invocation ends first: the job never has the time that it is given",
        function::job_timeout_over_function,
    ),
    fault("settings-faulty", "no worker starts with it", function::settings_faulty),
    fault("permission-missing", "the worker cannot do its work", permissions::missing),
    warning(
        "permissions-wide",
        "whoever takes the worker over may do more than the worker ever does",
        permissions::wide,
    ),
    fault(
        "retention-short",
        "a message that comes back after its record has expired runs a second time",
        jobs::retention_short,
    ),
    warning(
        "key-window-short",
        "a retry past the window is not sent, but parked as unknown, for a person",
        jobs::key_window_short,
    ),
    fault(
        "key-from-message-id",
        "a command that is sent again, or redriven, has a new message id, and runs a second time",
        jobs::key_from_message_id,
    ),
    warning(
        "key-from-event-id",
        "a producer that calls PutEvents again makes a new id, and the job runs a second time",
        jobs::key_from_event_id,
    ),
    warning(
        "key-unstable",
        "what is new each time a command is sent makes each time a new operation",
        jobs::key_unstable,
    ),
    fault("table-missing", "no worker can claim anything", table::missing),
    fault("key-schema", "no claim can be written", table::key_schema),
    fault(
        "parked-index-missing",
        "what failed or needs a decision cannot be listed",
        table::parked_index_missing,
    ),
    fault(
        "parked-index-wrong",
        "what failed or needs a decision cannot be listed",
        table::parked_index_wrong,
    ),
    warning("ttl-off", "expired records stay, and are paid for, for ever", table::ttl_off),
    fault(
        "ttl-other-attribute",
        "records go too early, and their messages run again, or never",
        table::ttl_other_attribute,
    ),
    warning("pitr-off", "a table that is lost takes every claim along", table::pitr_off),
    warning(
        "global-table",
        "each Region decides on its own copy: two of them may run one key at once",
        table::global_table,
    ),
    fault("store-not-set-up", "no worker can claim anything", store::not_set_up),
    fault(
        "store-not-kept",
        "what is done is forgotten with the process or its machine, and done again",
        store::not_kept,
    ),
    fault(
        "redis-evicts",
        "a full server forgets what is done, and it is done again",
        store::redis_evicts,
    ),
    fault(
        "redis-not-persistent",
        "a restart forgets what is done, and it is done again",
        store::redis_not_persistent,
    ),
    warning(
        "redis-replicas-unconfirmed",
        "a failover forgets what had not reached the replica, however long ago that was",
        store::redis_replicas_unconfirmed,
    ),
    warning(
        "namespace-shared",
        "where both have a job and a key of one name, what one has done is done for the other",
        store::namespace_shared,
    ),
];

/// What the rules find in a deployment.
pub fn judge(deployment: &Deployment) -> Vec<Finding> {
    let mut found = Vec::new();
    for Rule { code, severity, why, judge } in RULES {
        let finding = |severity, what, fix| Finding {
            severity,
            code,
            deployment: deployment.name.clone(),
            what,
            why,
            fix,
        };
        match judge(deployment) {
            Ok(said) => {
                found.extend(said.into_iter().map(|it| finding(*severity, it.what, it.fix)));
            }
            Err(Untold(because)) => {
                found.push(finding(Severity::CannotJudge, because, String::new()));
            }
        }
    }
    found
}

/// The codes of all rules.
#[cfg(test)]
pub fn codes() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|rule| rule.code)
}

/// Nothing is wrong.
const FINE: Judged = Ok(Vec::new());

fn one(what: impl Into<String>, fix: impl Into<String>) -> Judged {
    Ok(vec![Said::new(what, fix)])
}

/// Days where it is whole days: what is set is mostly said in them.
pub fn shown(duration: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % DAY == 0 => format!("{} days", seconds / DAY),
        _ => humantime::format_duration(duration).to_string(),
    }
}
