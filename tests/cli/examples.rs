//! The examples, as a person runs them.

use crate::{example, run};

fn said(name: &str) -> String {
    let (code, said) = run::<&str>(&mut example(name), &[]);
    assert_eq!(code, Some(0), "{said}");
    said
}

/// The keys that lines with these words show.
fn keys<'a>(said: &'a str, words: &str) -> Vec<&'a str> {
    let lines = said.lines().filter(|line| line.contains(words));
    lines.filter_map(|line| line.rsplit_once("under ").map(|(_, key)| key)).collect()
}

#[test]
fn a_charge_keeps_its_key_after_a_lost_answer_and_changes_it_after_a_decline() {
    let said = said("charge");
    let (flaky, empty) = (keys(&said, "of flaky"), keys(&said, "of empty"));
    assert!(flaky.len() == 2 && flaky[0] == flaky[1], "{said}");
    assert!(empty.len() == 2 && empty[0] != empty[1], "{said}");
    assert!(said.contains("4 requests under 3 keys: 2 charges"), "{said}");
}

#[test]
fn stock_is_taken_once_for_each_order_and_never_below_nothing() {
    let said = said("reserve_stock");
    let last = "80 deliveries of 20 orders: 15 reserved, 0 cups left";
    assert!(said.contains(last), "{said}");
}

const PAID: &str = "30 deliveries, then 10 under other keys\n8 payments, 0 cents left";

#[test]
fn payments_are_made_once_whatever_the_keys_and_never_beyond_the_wallet() {
    let said = said("payments");
    assert!(said.contains(PAID), "{said}");
}

#[test]
fn payments_are_the_same_in_postgres() {
    let server = crate::server::Postgres::start();
    let (code, said) = run(&mut example("payments"), &[server.url()]);
    assert!(code == Some(0) && said.contains(PAID), "{said}");
}

#[test]
fn onboarding_goes_on_where_it_ended_and_parks_what_nobody_knows() {
    let said = said("onboarding");
    for (words, times) in
        [("an account for Ada", 1), ("a mail to Ada", 1), ("a voucher for Bob", 1)]
    {
        assert_eq!(said.matches(words).count(), times, "{words}: {said}");
    }
    assert!(said.contains("3 acknowledged, 2 in quarantine"), "{said}");
}

#[test]
fn a_models_calls_are_paid_for_once_and_within_the_budget() {
    let said = said("tool_call");
    assert_eq!(said.matches("call 1: refund").count(), 1, "{said}");
    assert_eq!(said.matches("a ticket under").count(), 1, "{said}");
    assert!(said.contains("60 cents paid"), "{said}");
    assert!(said.contains("3 acknowledged, 1 in quarantine"), "{said}");
}
