//! Charging a card once: `cargo run --example charge`.
//!
//! A keyed effect sends the provider one key for one operation, however often its message comes and
//! whatever is lost. Here the provider takes the first request and its answer is lost: the second
//! attempt sends the same request under the same key, and the provider answers with the charge it
//! has made. The message comes twice, as SQS's messages do: the copy is answered from the record.
//!
//! Another card is declined. That is certain, so `HandlerError::rejected` ends the job; once the
//! customer has paid into the account, the dead letter is sent again, and the charge runs under a
//! *new* key, because a provider replays a decline under its old one. A lost answer never makes a
//! new key: it may have been a charge.

mod embedded;

use std::time::Duration;

use onlyonce::{BoxError, Context, HandlerError, Job, RetryPolicy, Router};
use serde::{Deserialize, Serialize};

use embedded::Embedded;
use provider::Answer;

#[derive(Deserialize, Serialize)]
struct Invoice {
    card: String,
    cents: u64,
}

async fn charge(invoice: Invoice, cx: Context) -> Result<String, HandlerError> {
    let charge = cx.effect("charge").window(Duration::from_secs(24 * 3600)).request(&invoice);
    let send = async |key| match provider::charge(&invoice, key) {
        Answer::Charged(id) => Ok(id),
        Answer::Declined => Err(HandlerError::rejected("card_declined")),
        Answer::Lost => Err(HandlerError::retryable("the connection was reset")),
    };
    charge.keyed(send).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let retry = RetryPolicy::fixed(Duration::from_secs(1), 5);
    let jobs = Router::new().with(Job::new("invoice.charge", charge).retry(retry));
    let messages = [
        ("invoice.charge", "invoice:1:charge", r#"{"card":"flaky","cents":500}"#),
        ("invoice.charge", "invoice:1:charge", r#"{"card":"flaky","cents":500}"#),
        ("invoice.charge", "invoice:2:charge", r#"{"card":"empty","cents":900}"#),
    ];
    Embedded::new("charge")?.deliver(jobs, &messages, true).await?;
    let (requests, keys, charges) = provider::seen();
    println!("{requests} requests under {keys} keys: {charges} charges");
    Ok(())
}

/// Stands for a payment provider, which remembers its answer to each key.
mod provider {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex, PoisonError};

    use super::Invoice;
    use onlyonce::EffectKey;

    #[derive(Clone)]
    pub enum Answer {
        Charged(String),
        Declined,
        Lost,
    }

    #[derive(Default)]
    struct Seen {
        requests: usize,
        answers: HashMap<String, Answer>,
    }

    static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);

    pub fn charge(invoice: &Invoice, key: EffectKey) -> Answer {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        seen.requests += 1;
        println!("{} cents of {} under {key}", invoice.cents, invoice.card);
        if let Some(answer) = seen.answers.get(key.as_str()) {
            return answer.clone();
        }
        let is_first = seen.answers.values().all(|answer| !matches!(answer, Answer::Declined));
        let answer = match invoice.card.as_str() {
            "empty" if is_first => Answer::Declined,
            _ => Answer::Charged(format!("ch_{}", seen.answers.len() + 1)),
        };
        seen.answers.insert(key.as_str().to_owned(), answer.clone());
        if invoice.card == "flaky" { Answer::Lost } else { answer }
    }

    pub fn seen() -> (usize, usize, usize) {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let charges = seen.answers.values().filter(|it| matches!(it, Answer::Charged(_)));
        (seen.requests, seen.answers.len(), charges.count())
    }
}
