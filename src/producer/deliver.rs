//! One request, again and again until every message in it has its answer.

use std::collections::HashSet;
use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchError;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};

use super::batch::Placed;
use super::failure::{SendError, SendErrorKind};
use super::{Sent, is_fifo};
use crate::protocol::RetryPolicy;
use crate::runtime::{Clock, Entropy, before};

/// The longest wait for one answer: a larger limit is for trying again.
const ONE_ANSWER: Duration = Duration::from_secs(5);

/// What SQS says when trying again may help, though it names the sender.
const NOT_NOW: &[&str] = &[
    "ExpiredToken",
    "ExpiredTokenException",
    "InternalError",
    "KmsThrottled",
    "OverLimit",
    "RequestExpired",
    "RequestThrottled",
    "RequestTimeTooSkewed",
    "ServiceUnavailable",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];

/// Where messages go, and how long that may take.
pub(super) struct Route<'a> {
    pub client: &'a Client,
    pub queue_url: &'a str,
    pub limit: Duration,
    pub clock: &'a dyn Clock,
    pub entropy: &'a dyn Entropy,
}

/// What became of a request.
enum Answer {
    /// What SQS said of each entry that it spoke of, by place in the batch.
    Of(Vec<(usize, Said)>),
    /// Nothing of any entry: it was not begun, and trying again may help.
    Again(String),
    /// Nothing is known of any entry, and trying again may help.
    Lost(String),
    /// Trying again cannot help.
    Refused(String),
}

enum Said {
    Sent { message_id: String, sequence_number: Option<String> },
    Again(String),
    Lost(String),
    Refused(String),
}

impl Route<'_> {
    /// Sends a batch within the limit; answers for each message, in order.
    pub async fn deliver(&self, batch: &[Placed]) -> Vec<Result<Sent, SendError>> {
        let mut outcomes: Vec<_> = batch.iter().map(|_| None).collect();
        let mut reasons = vec!["it was not sent in time".to_owned(); batch.len()];
        // Of these a request may have arrived.
        let mut lost = HashSet::new();
        let until = self.clock.now() + self.limit;
        let backoff =
            RetryPolicy::exponential(Duration::from_millis(100), Duration::from_secs(2), u32::MAX);
        for attempt in 1..u32::MAX {
            let open: Vec<usize> = (0..batch.len())
                .filter(|at| outcomes.get(*at).is_some_and(Option::is_none))
                .collect();
            if open.is_empty() {
                break;
            }
            let heard_by = (self.clock.now() + ONE_ANSWER.min(self.limit / 2)).min(until);
            let answer = before(self.clock, heard_by, self.request(batch, &open)).await;
            let answer = answer.unwrap_or_else(|| Answer::Lost("no answer in time".to_owned()));
            let said = match answer {
                Answer::Of(said) => said,
                Answer::Again(why) => all(&open, || Said::Again(why.clone())),
                Answer::Lost(why) => all(&open, || Said::Lost(why.clone())),
                Answer::Refused(why) => all(&open, || Said::Refused(why.clone())),
            };
            for (at, said) in said {
                let (Some(outcome), Some((_, parcel)), Some(reason)) =
                    (outcomes.get_mut(at), batch.get(at), reasons.get_mut(at))
                else {
                    continue;
                };
                match said {
                    Said::Sent { message_id, sequence_number } => {
                        let id = parcel.id.clone();
                        *outcome = Some(Ok(Sent { message_id, id, sequence_number }));
                    }
                    Said::Refused(why) if lost.contains(&at) => {
                        let why = format!("{why}; an earlier request may have arrived");
                        let error = SendError::new(SendErrorKind::Unconfirmed, parcel, why);
                        *outcome = Some(Err(error));
                    }
                    Said::Refused(why) => {
                        *outcome = Some(Err(SendError::new(SendErrorKind::Refused, parcel, why)));
                    }
                    Said::Again(why) => *reason = why,
                    Said::Lost(why) => {
                        lost.insert(at);
                        *reason = why;
                    }
                }
            }
            let again = self.clock.now() + backoff.delay(attempt, self.entropy.jitter());
            if again >= until {
                break;
            }
            if outcomes.iter().any(Option::is_none) {
                self.clock.sleep_until(again).await;
            }
        }
        let ends = outcomes.into_iter().zip(batch).zip(reasons);
        ends.map(|((outcome, (_, parcel)), reason)| {
            outcome.unwrap_or_else(|| {
                let limit = self.limit.as_secs_f64();
                let why = format!(
                    "not confirmed within {limit} s ({reason}); it may be in the queue, so send it \
                     again under the same key"
                );
                Err(SendError::new(SendErrorKind::Unconfirmed, parcel, why))
            })
        })
        .collect()
    }

    async fn request(&self, batch: &[Placed], open: &[usize]) -> Answer {
        let entries = open.iter().filter_map(|at| batch.get(*at).map(|parcel| (*at, parcel)));
        let entries: Result<Vec<_>, _> =
            entries.map(|(at, parcel)| self.entry(at, parcel)).collect();
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return Answer::Refused(error.to_string()),
        };
        let send = self.client.send_message_batch().queue_url(self.queue_url);
        // Large, and each caller's future would hold it.
        let answer = match Box::pin(send.set_entries(Some(entries)).send()).await {
            Ok(answer) => answer,
            Err(error) => return told_apart(&error),
        };
        let sent = answer.successful.into_iter().filter_map(|entry| {
            let at = entry.id.parse().ok()?;
            let (message_id, sequence_number) = (entry.message_id, entry.sequence_number);
            Some((at, Said::Sent { message_id, sequence_number }))
        });
        let failed = answer.failed.into_iter().filter_map(|entry| {
            let at = entry.id.parse().ok()?;
            let code = shown(&entry.code);
            let is_final = entry.sender_fault && !NOT_NOW.contains(&code.as_str());
            Some((at, if is_final { Said::Refused(refusal(&code)) } else { Said::Again(code) }))
        });
        // What it does not speak of stays open.
        Answer::Of(sent.chain(failed).collect())
    }

    fn entry(
        &self,
        at: usize,
        (_, parcel): &Placed,
    ) -> Result<SendMessageBatchRequestEntry, BuildError> {
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .message_body(&parcel.body)
            .set_message_group_id(parcel.group.clone())
            .set_delay_seconds(parcel.delay.and_then(|delay| i32::try_from(delay).ok()));
        for (name, text) in &parcel.attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(text);
            entry = entry.message_attributes(name, value.build()?);
        }
        if is_fifo(self.queue_url) {
            // Of namespace, job and key: 64 characters, whatever the key is made of.
            entry = entry.set_message_deduplication_id(parcel.id.as_ref().map(ToString::to_string));
        }
        entry.build()
    }
}

fn all(open: &[usize], said: impl Fn() -> Said) -> Vec<(usize, Said)> {
    open.iter().map(|at| (*at, said())).collect()
}

/// What a request that failed as a whole means.
fn told_apart(error: &SdkError<SendMessageBatchError, HttpResponse>) -> Answer {
    match error {
        SdkError::ServiceError(answer) => {
            let code = shown(answer.err().code().unwrap_or_default());
            let status = answer.raw().status().as_u16();
            match (NOT_NOW.contains(&code.as_str()), status) {
                (false, 400..=407 | 409..=428 | 430..=499) => Answer::Refused(refusal(&code)),
                (_, 400..=499) => Answer::Again(format!("{code} {status}")),
                _ => Answer::Lost(format!("{code} {status}")),
            }
        }
        SdkError::ConstructionFailure(_) => Answer::Refused(last_cause(error)),
        // The last cause is the network's or the credentials': neither knows the message.
        _ => Answer::Lost(last_cause(error)),
    }
}

fn refusal(code: &str) -> String {
    let remedy = match code {
        "NonExistentQueue" | "QueueDoesNotExist" => "; correct the queue's URL, or make the queue",
        "AccessDenied" | "AccessDeniedException" => "; allow the producer sqs:SendMessage on it",
        "KmsAccessDenied" | "KMS.AccessDeniedException" => {
            "; allow the producer kms:GenerateDataKey and kms:Decrypt on the queue's key"
        }
        _ => "",
    };
    format!("SQS refused it: {code}{remedy}")
}

/// AWS's codes are words, some with the service's name in front. Its texts are left out: they may
/// quote what was sent.
fn shown(code: &str) -> String {
    let code = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    let code: String = code.chars().filter(char::is_ascii_graphic).take(100).collect();
    if code.is_empty() { "an error without a code".to_owned() } else { code }
}

fn last_cause(error: &(dyn StdError + 'static)) -> String {
    let last = std::iter::successors(Some(error), |error| (*error).source()).last();
    last.map(ToString::to_string).unwrap_or_default().chars().take(200).collect()
}
