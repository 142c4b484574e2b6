//! Several effects in one job, each with its own promise: `cargo run --example onboarding`.
//!
//! A new customer gets an account at the billing provider (keyed: the provider knows our key), a
//! welcome mail (at least once: a second one is a nuisance, and no more), and a printed voucher from
//! a printer that knows no keys (at most once: a second one is money). The results of earlier effects
//! are on the record before the next one begins, so a later attempt goes on where the last one ended.
//!
//! Here the mail server is busy at first: the second attempt has the account already. For another
//! customer the printer jams in the middle. Nobody can know whether the voucher came out, so the job
//! ends as `unknown`, in quarantine, for a person; copies of its message print nothing.

mod embedded;

use std::time::Duration;

use onlyonce::{BoxError, Context, HandlerError, Job, RetryPolicy, Router};
use serde::Deserialize;

use embedded::Embedded;

#[derive(Deserialize)]
struct Customer {
    name: String,
}

async fn onboard(customer: Customer, cx: Context) -> Result<String, HandlerError> {
    let name = &customer.name;
    let account: String =
        cx.effect("account").keyed(async |key| outside::open_account(name, key.as_str())).await?;
    cx.effect("welcome-mail")
        .at_least_once(async || outside::mail(name, &account, cx.attempt()))
        .await?;
    cx.effect("voucher").at_most_once(async || outside::print_voucher(name)).await?;
    Ok(account)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let retry = RetryPolicy::fixed(Duration::from_secs(1), 3);
    let jobs = Router::new().with(Job::new("customer.onboard", onboard).retry(retry));
    let (ada, bob) = (r#"{"name":"Ada"}"#, r#"{"name":"Bob"}"#);
    let messages = [
        ("customer.onboard", "customer:ada:onboard", ada),
        ("customer.onboard", "customer:bob:onboard", bob),
        ("customer.onboard", "customer:bob:onboard", bob),
    ];
    let drained = Embedded::new("onboarding")?.deliver(jobs, &messages, false).await?;
    println!("{} acknowledged, {} in quarantine", drained.deleted, drained.dead);
    Ok(())
}

/// Stands for the world.
mod outside {
    use onlyonce::HandlerError;

    pub fn open_account(name: &str, key: &str) -> Result<String, HandlerError> {
        println!("an account for {name}, under {key}");
        Ok(format!("acct_{name}"))
    }

    pub fn mail(name: &str, account: &str, attempt: u32) -> Result<(), HandlerError> {
        if attempt == 1 && name == "Ada" {
            println!("the mail server is busy");
            return Err(HandlerError::retryable("451"));
        }
        println!("a mail to {name}: welcome, you are {account}");
        Ok(())
    }

    pub fn print_voucher(name: &str) -> Result<(), HandlerError> {
        println!("a voucher for {name}");
        if name == "Bob" { Err(HandlerError::retryable("the printer jammed")) } else { Ok(()) }
    }
}
