//! An agent's expensive steps, paid for once, within a budget: `cargo run --example tool_call`.
//!
//! Each call of the model is an effect of its own. Its result is on the record before the next call
//! begins, so an attempt that dies or fails in the middle does not pay for the earlier calls again:
//! the next one is given their answers and goes on. What was spent is in those answers, too, so
//! the budget holds over all attempts of the job and not just for the last.
//!
//! A model's call is at least once: after a crash in the very middle of one it is paid for again,
//! and that is accepted. What the agent then *does* is keyed, under a key that is the same however
//! it came to be done. Here the third call fails at first, and another question is too expensive.

mod embedded;

use std::time::Duration;

use onlyonce::{BoxError, Context, HandlerError, Job, RetryPolicy, Router};
use serde::{Deserialize, Serialize};

use embedded::Embedded;

#[derive(Deserialize)]
struct Question {
    about: String,
    cents: u64,
}

#[derive(Deserialize, Serialize)]
struct Said {
    text: String,
    cents: u64,
    is_last: bool,
}

async fn answer(question: Question, cx: Context) -> Result<String, HandlerError> {
    let (mut said, mut spent) = (question.about.clone(), 0);
    for step in 1.. {
        if spent >= question.cents {
            let message = format!("{spent} cents are spent, and there is no answer");
            return Err(HandlerError::terminal(message));
        }
        let call = cx.effect(format!("model-{step}"));
        let next: Said =
            call.at_least_once(async || model::call(&said, step, cx.attempt())).await?;
        spent += next.cents;
        said = next.text;
        if next.is_last {
            break;
        }
    }
    cx.effect("ticket").keyed(async |key| model::open_ticket(&said, key.as_str())).await
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let retry = RetryPolicy::fixed(Duration::from_secs(1), 3);
    let jobs = Router::new().with(Job::new("agent.answer", answer).retry(retry));
    let messages = [
        ("agent.answer", "ticket:1:answer", r#"{"about":"refund","cents":50}"#),
        ("agent.answer", "ticket:1:answer", r#"{"about":"refund","cents":50}"#),
        ("agent.answer", "ticket:2:answer", r#"{"about":"everything","cents":20}"#),
    ];
    let drained = Embedded::new("tool-call")?.deliver(jobs, &messages, false).await?;
    println!("{} acknowledged, {} in quarantine", drained.deleted, drained.dead);
    println!("{} cents paid", model::paid());
    Ok(())
}

/// Stands for a language model and a ticket system.
mod model {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Said;
    use onlyonce::HandlerError;

    static PAID: AtomicU64 = AtomicU64::new(0);

    pub fn call(said: &str, step: u32, attempt: u32) -> Result<Said, HandlerError> {
        if step == 3 && attempt == 1 {
            println!("call {step}: overloaded");
            return Err(HandlerError::retryable("overloaded").not_sent());
        }
        println!("call {step}: {said}");
        PAID.fetch_add(10, Ordering::Relaxed);
        let is_last = step == 4 && !said.starts_with("everything");
        Ok(Said { text: format!("{said}, thought over"), cents: 10, is_last })
    }

    pub fn open_ticket(text: &str, key: &str) -> Result<String, HandlerError> {
        println!("a ticket under {key}: {text}");
        Ok(format!("ticket of {} words", text.split(' ').count()))
    }

    pub fn paid() -> u64 {
        PAID.load(Ordering::Relaxed)
    }
}
