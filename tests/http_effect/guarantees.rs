//! What each guarantee makes of an answer, and of none; how Stripe is understood.

use std::time::Duration;

use onlyonce::protocol::{EffectState, IdempotencyKey, Record, RecordId, Status};
use onlyonce::service::Ending;

use crate::receiver::{Receiver, Request};
use crate::{EMPTY, Jobs};

const TO_RECEIVER: &str = "url = \"http://127.0.0.1:PORT/v1/charges\"\ntimeout = \"2s\"\n\
    allow_hosts = [\"127.0.0.1\"]\nretry = { policy = \"fixed\", delay = \"0s\", attempts = 9 }\n";

fn job(lines: &str) -> String {
    format!("{TO_RECEIVER}{lines}")
}

/// An answer with a JSON body.
fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("{status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

async fn record(jobs: &Jobs) -> Record {
    let id = RecordId::new("default", "job", &IdempotencyKey::new("order-1").unwrap());
    jobs.store.load(&id).await.unwrap().unwrap()
}

/// Runs the job against these answers, as often as it is released, and what it came to.
async fn ended(lines: &str, answers: &[&str]) -> (Record, Vec<Request>, Ending) {
    let receiver = Receiver::start(answers).await;
    let jobs = Jobs::new(&job(lines), &receiver);
    for _ in 0..9 {
        let outcome = jobs.run("order-1", "{\"amount\":5}").await;
        if !matches!(outcome.ending, Ending::Released(_) | Ending::Later(_)) {
            return (record(&jobs).await, receiver.seen(), outcome.ending);
        }
    }
    panic!("released nine times: {:?}", record(&jobs).await);
}

const AT_MOST_ONCE: &str = "guarantee = \"at-most-once\"";

#[tokio::test]
async fn at_most_once_is_unknown_unless_nothing_happened_for_certain() {
    for doubtful in
        ["hang up", "silence", &format!("500 Oops{EMPTY}"), &format!("303 Other{EMPTY}")]
    {
        let (record, seen, _) = ended(AT_MOST_ONCE, &[doubtful]).await;
        assert_eq!((record.status, seen.len()), (Status::Unknown, 1), "{doubtful}");
        assert_eq!(record.expires_at, None);
    }
    for refused in ["400 Bad", "401 Who", "402 Pay", "404 None"] {
        let (record, _, _) = ended(AT_MOST_ONCE, &[&format!("{refused}{EMPTY}")]).await;
        assert_eq!(record.status, Status::Failed, "{refused}");
        assert_eq!(record.effects["http"].state, EffectState::Rejected);
    }
    // A throttle did nothing, so it may be tried again.
    let (record, seen, _) = ended(AT_MOST_ONCE, &[&format!("429 Slow{EMPTY}")]).await;
    assert_eq!((record.status, seen.len()), (Status::Completed, 2));
}

#[tokio::test]
async fn at_most_once_is_tried_again_while_nobody_listens() {
    let receiver = Receiver::start(&[]).await;
    let jobs = Jobs::new(&job(AT_MOST_ONCE), &receiver);
    let port = receiver.port;
    drop(receiver);
    let refused = jobs.run("order-1", "{\"amount\":5}").await;
    assert!(matches!(refused.ending, Ending::Released(_)), "{refused:?}");
    assert_eq!(record(&jobs).await.effects["http"].state, EffectState::Unsent);
    let receiver = Receiver::at(port, &[]).await;
    let done = jobs.run("order-1", "{\"amount\":5}").await;
    assert!(matches!(done.ending, Ending::Completed(_)), "{done:?}");
    assert_eq!(receiver.seen().len(), 1);
}

const RECONCILE: &str = "guarantee = \"reconcile\"\nkey_header = \"X-Reference\"\n\
    ask = { url = \"http://127.0.0.1:PORT/v1/charges/{effect_key}?of={amount}\", lag = \"0s\" }";

#[tokio::test]
async fn a_provider_is_asked_what_became_of_a_request_without_an_answer() {
    // It was done.
    let found = answer("200 OK", "", "{\"id\":\"ch_1\"}");
    let (record, seen, _) = ended(RECONCILE, &["hang up", &found]).await;
    assert_eq!((record.status, seen.len()), (Status::Completed, 2));
    let key = record.effect_key("http");
    assert_eq!(seen[0].header("x-reference"), Some(key.as_str()));
    assert_eq!(seen[1].line, format!("GET /v1/charges/{key}?of=5 HTTP/1.1"));
    assert!(record.effects["http"].result.as_deref().unwrap().contains("ch_1"));
    // The provider cannot be reached, and is asked again.
    let busy = format!("503 Busy{EMPTY}");
    let (record, seen, _) = ended(RECONCILE, &["hang up", &busy, "hang up", &found]).await;
    assert_eq!((record.status, seen.len()), (Status::Completed, 4));
    assert_eq!(seen.iter().filter(|request| request.line.starts_with("POST")).count(), 1);
}

#[tokio::test]
async fn what_was_not_done_is_sent_again_only_once_it_can_no_longer_be_under_way() {
    let receiver =
        Receiver::start(&["hang up", &format!("404 None{EMPTY}"), &format!("404 None{EMPTY}")])
            .await;
    let jobs = Jobs::new(&job(RECONCILE), &receiver);
    jobs.run("order-1", "{\"amount\":5}").await;
    let asked = jobs.worker.clock().now();
    let Ending::Released(at) = jobs.run("order-1", "{\"amount\":5}").await.ending else {
        panic!("it may be under way")
    };
    // The request's own timeout of two seconds, and one for its intent, from when it was begun.
    assert!(at.since(asked) <= Duration::from_secs(3));
    jobs.worker.clock().sleep_until(at).await;
    let done = jobs.run("order-1", "{\"amount\":5}").await;
    assert!(matches!(done.ending, Ending::Completed(_)), "{done:?}");
    let lines: Vec<_> = receiver.seen().iter().map(|seen| seen.line[..4].to_owned()).collect();
    assert_eq!(lines, ["POST", "GET ", "GET ", "POST"]);
}

#[tokio::test]
async fn a_list_is_searched_for_the_effect() {
    let lines = "guarantee = \"reconcile\"\n\
        ask = { url = \"http://127.0.0.1:PORT/v1/charges\", found = \"data[?amount==`5`]\", lag = \"0s\" }";
    let list = answer("200 OK", "", "{\"data\":[{\"amount\":4},{\"amount\":5}]}");
    let (record, _, _) = ended(lines, &["hang up", &list]).await;
    assert_eq!(record.status, Status::Completed);
    // What is no list cannot say.
    let (record, seen, _) = ended(lines, &["hang up", &answer("200 OK", "", "<html>")]).await;
    assert_eq!((record.status, seen.len()), (Status::Unknown, 2));
}

const STRIPE: &str = "guarantee = \"keyed\"\nprovider = \"stripe\"\nbody = \"form\"";

fn stripe_error(status: &str, kind: &str) -> String {
    answer(status, "", &format!("{{\"error\":{{\"type\":\"{kind}\",\"code\":\"card_declined\"}}}}"))
}

#[tokio::test]
async fn a_decline_by_stripe_is_definite_and_in_flight_is_not() {
    let in_flight = stripe_error("409 Conflict", "idempotency_error");
    let declined = stripe_error("402 Payment Required", "card_error");
    let (record, seen, _) = ended(STRIPE, &[&in_flight, &declined]).await;
    assert_eq!((record.status, seen.len()), (Status::Failed, 2));
    assert_eq!(record.effects["http"].state, EffectState::Rejected);
    let error = record.error.unwrap();
    assert!(error.contains("(card_error, card_declined)"), "{error}");
    assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    assert_eq!(seen[0].body, "amount=5");
}

#[tokio::test]
async fn stripes_replayed_failure_and_mismatch_are_unknown_under_the_same_key() {
    let failed = answer("500 Oops", "", "{}");
    let replayed = answer("500 Oops", "idempotent-replayed: true\r\n", "{}");
    let mismatch = stripe_error("400 Bad Request", "idempotency_error");
    for last in [&replayed, &mismatch] {
        let (record, seen, _) = ended(STRIPE, &[&failed, last]).await;
        assert_eq!((record.status, seen.len()), (Status::Unknown, 2));
        assert_eq!(record.effects["http"].generation, 0);
    }
}

#[tokio::test]
async fn a_replayed_failure_leads_to_asking_where_the_provider_can_be_asked() {
    let lines = format!(
        "{STRIPE}\nask = {{ url = \"http://127.0.0.1:PORT/v1/charges?transfer_group={{amount}}\", \
         found = \"data[0]\", lag = \"0s\" }}"
    );
    let replayed = answer("500 Oops", "idempotent-replayed: true\r\n", "{}");
    let found = answer("200 OK", "", "{\"data\":[{\"id\":\"ch_1\"}]}");
    let (record, seen, _) = ended(&lines, &["hang up", &replayed, &found]).await;
    assert_eq!((record.status, seen.len()), (Status::Completed, 3));
    assert!(record.effects["http"].result.as_deref().unwrap().contains("ch_1"));
}

#[tokio::test]
async fn a_standard_providers_422_is_a_refusal_at_first_and_unknown_after_a_lost_answer() {
    let no = format!("422 No{EMPTY}");
    let (record, _, _) = ended("guarantee = \"keyed\"", &[&no]).await;
    assert_eq!(record.status, Status::Failed);
    let (record, _, _) = ended("guarantee = \"keyed\"", &["hang up", &no]).await;
    assert_eq!(record.status, Status::Unknown);
    assert!(record.error.unwrap().contains("may know the key with another request"));
}
