//! One input at a time, as libFuzzer gives it.

use std::cell::RefCell;

use crate::config::fuzz as config;
use crate::effect::email::fuzz as email;
use crate::effect::fuzz as effect;
use crate::effect::http::fuzz as http;
use crate::{front, payload};

thread_local! {
    static INPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Feeds `check` the input of this turn.
pub(crate) fn fuzz(_target: &str, check: impl Fn(&str)) {
    INPUT.with_borrow(|input| check(input));
}

/// Feeds one input to all that is tested with the corpus `target`.
pub fn run(target: &str, data: &[u8]) {
    INPUT.set(String::from_utf8_lossy(data).into_owned());
    match target {
        "address" => email::an_address_is_one_or_none(),
        "event" => front::fuzz::an_event_is_read_or_refused(),
        "expression" => config::an_expression_is_compiled_or_refused_and_its_answer_is_no_panic(),
        "jobs" => config::a_jobs_file_is_read_or_its_faults_are_named(),
        "mail" => email::a_mail_has_the_headers_that_the_job_gives_it_and_no_others(),
        "message" => {
            front::fuzz::a_body_is_read_or_refused();
            front::fuzz::a_body_that_names_its_own_job_is_read_or_refused();
            front::fuzz::a_records_neighbour_is_read_as_if_it_were_alone();
        }
        "payload" => payload::fuzz::one_form_is_its_own_and_of_one_payload_there_is_one(),
        "retry_after" => http::a_retry_after_is_a_wait_within_bounds_or_none(),
        "row" => effect::a_row_is_written_under_a_key_that_every_store_takes_or_not_at_all(),
        "template" => effect::a_template_is_read_or_refused_and_fills_to_a_bounded_size(),
        "url" => http::a_payload_chooses_neither_host_nor_path(),
        other => unreachable!("no target is named {other:?}"),
    }
}
