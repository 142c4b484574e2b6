//! Batches: each message answered for by itself.

use onlyonce::protocol::Status;
use onlyonce::service::Ending;

use crate::kit::{Kit, SECOND, delivery, in_group, message};

const NONE: [&str; 0] = [];

#[tokio::test(start_paused = true)]
async fn every_failed_id_is_returned_and_no_other() {
    let kit = Kit::new([]);
    let batch = [
        message("one", "stumble", "1", "{}"),
        message("two", "echo", "2", "{}"),
        message("three", "stumble", "3", "{}"),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, ["one", "three"]);
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_every_id_is_listed_once() {
    let kit = Kit::new([]);
    let mut batch: Vec<_> =
        (0..12).map(|n| message(&format!("m-{n}"), "stumble", &n.to_string(), "{}")).collect();
    // The same delivery twice: an id is never reported twice.
    batch.push(batch[3].clone());
    let mut failed = kit.batch(&batch, SECOND * 60).await;
    failed.sort();
    let mut all: Vec<_> = (0..12).map(|n| format!("m-{n}")).collect();
    all.sort();
    assert_eq!(failed, all);
}

#[tokio::test(start_paused = true)]
async fn a_poison_body_is_its_own_messages_end() {
    let kit = Kit::new([]);
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let batch = [
        message("good", "echo", "1", "{}"),
        message("not json", "echo", "2", "{\"a\":"),
        message("deep", "echo", "3", &deep),
        message("unknown job", "nobody", "4", "{}"),
        message("no key", "echo", "", "{}"),
        message("no job", "", "6", "{}"),
        message("long key", "echo", &"k".repeat(20_000), "{}"),
        message("also good", "echo", &"k".repeat(3_000), "{}"),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!(kit.runs.count(), 2);
    let mut causes = kit.queue.causes();
    causes.sort();
    let ids: Vec<_> = causes.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["deep", "long key", "no job", "no key", "not json", "unknown job"]);
    assert!(causes.iter().all(|(_, cause)| cause == "undecodable"));
}

#[tokio::test(start_paused = true)]
async fn messages_without_a_key_share_no_record() {
    let kit = Kit::new([]);
    let mut empty = message("empty", "echo", "x", "{}");
    empty
        .attributes
        .insert(onlyonce::front::ATTRIBUTE_KEY.to_owned(), onlyonce::front::Attribute::text(""));
    let batch = [message("absent", "echo", "", "{}"), empty];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!((kit.runs.count(), kit.store.commits()), (0, 0));
    let quarantined = kit.queue.quarantined.lock().unwrap();
    assert_eq!(quarantined.len(), 2);
    for (_, mark) in quarantined.iter() {
        assert!(mark.error.contains("key"), "{}", mark.error);
        assert_eq!(mark.key, None);
    }
}

#[tokio::test(start_paused = true)]
async fn an_s3_test_event_is_acknowledged_and_its_neighbours_untouched() {
    let kit = Kit::new([]);
    let test = r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}"#;
    let quoted = serde_json::to_string(test).unwrap();
    let in_sns = format!("{{\"Type\":\"Notification\",\"Message\":{quoted}}}");
    let batch = [
        message("test", "", "", test),
        message("in sns", "", "", &in_sns),
        message("good", "echo", "1", "{}"),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!((kit.runs.count(), kit.queue.causes().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn as_time_runs_out_nothing_is_begun_what_runs_is_stopped_and_what_is_done_stands() {
    let kit = Kit::new([]);
    // Four run at once: one is quick, three are stopped, the rest never start.
    let mut batch = vec![message("quick", "echo", "quick", "{}")];
    batch.extend(
        (0..8).map(|n| {
            message(&format!("slow-{n}"), "slow", &format!("slow-{n}"), "{\"ms\":900000}")
        }),
    );
    let begun = kit.worker.clock().now();
    let failed = kit.batch(&batch, SECOND * 30).await;
    assert_eq!(failed.len(), 8);
    assert!(!failed.contains(&"quick".to_owned()));
    assert!(kit.worker.clock().now() < begun + SECOND * 30, "there is still time to answer");
    assert_eq!(kit.record("echo", "quick").await.unwrap().status, Status::Completed);

    let mut released = 0;
    for n in 0..8 {
        match kit.record("slow", &format!("slow-{n}")).await {
            Some(record) => {
                assert_eq!(record.status, Status::Released);
                assert_eq!(kit.queue.delay_of(&format!("slow-{n}")), Some(10));
                released += 1;
            }
            // Not begun, so worth trying at once.
            None => assert_eq!(kit.queue.delay_of(&format!("slow-{n}")), Some(0)),
        }
    }
    assert_eq!((released, kit.runs.count()), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_own_message_only() {
    let kit = Kit::new([]);
    let batch = [
        message("bad", "explode", "1", "{}"),
        message("good", "echo", "2", "{}"),
        message("fine", "echo", "3", "{}"),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, ["bad"]);
    let record = kit.record("explode", "1").await.unwrap();
    assert_eq!(record.status, Status::Released);
    assert_eq!(record.error.as_deref(), Some("the handler panicked: a bug in one job"));
}

#[tokio::test(start_paused = true)]
async fn the_same_key_twice_in_one_batch_runs_once_and_both_are_done() {
    let kit = Kit::new([]);
    let body = "{\"ms\":5000}";
    let batch: Vec<_> = (0..6).map(|n| message(&format!("m-{n}"), "slow", "same", body)).collect();
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!(kit.runs.count(), 1);
    let again = kit.handle(delivery("slow", "same", body)).await;
    assert!(matches!(again.ending, Ending::Replayed(_)), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_standard_queue_runs_no_more_than_its_concurrency_at_once() {
    let kit = Kit::new([]);
    let begun = kit.worker.clock().now();
    let batch: Vec<_> = (0..12)
        .map(|n| message(&format!("m-{n}"), "slow", &n.to_string(), "{\"ms\":1000}"))
        .collect();
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    // Twelve jobs of a second, four at a time.
    assert_eq!(kit.worker.clock().now().since(begun), SECOND * 3);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_is_in_order_and_stops_at_its_first_failure() {
    let kit = Kit::new([]);
    let batch = [
        in_group("a", message("a-1", "echo", "a-1", "{}")),
        in_group("b", message("b-1", "echo", "b-1", "{}")),
        in_group("a", message("a-2", "stumble", "a-2", "{}")),
        in_group("a", message("a-3", "echo", "a-3", "{}")),
        in_group("b", message("b-2", "echo", "b-2", "{}")),
        in_group("a", message("a-4", "echo", "a-4", "{}")),
    ];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, ["a-2", "a-3", "a-4"]);
    assert!(kit.record("echo", "a-3").await.is_none(), "it must not overtake");
    assert!(kit.record("echo", "b-2").await.is_some(), "other groups go on");
    for id in ["a-2", "a-3", "a-4"] {
        assert_eq!(kit.queue.delay_of(id), Some(10), "they come back together");
    }
    // A later batch of the same process remembers nothing of it.
    let next = [in_group("a", message("a-5", "echo", "a-5", "{}"))];
    assert_eq!(kit.batch(&next, SECOND * 60).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn fifo_groups_run_side_by_side_and_their_messages_one_by_one() {
    let kit = Kit::new([]);
    let begun = kit.worker.clock().now();
    let slow = |group: &str, n: u32| {
        let id = format!("{group}-{n}");
        in_group(group, message(&id, "slow", &id, "{\"ms\":1000}"))
    };
    let batch: Vec<_> = (0..3).flat_map(|n| [slow("a", n), slow("b", n), slow("c", n)]).collect();
    assert_eq!(kit.batch(&batch, SECOND * 60).await, NONE);
    assert_eq!(kit.worker.clock().now().since(begun), SECOND * 3);
}

#[tokio::test(start_paused = true)]
async fn skipped_fifo_messages_are_reported_even_when_time_is_over() {
    let kit = Kit::new([]);
    let batch: Vec<_> = (0..4)
        .map(|n| {
            let id = format!("m-{n}");
            in_group("a", message(&id, "slow", &id, "{\"ms\":20000}"))
        })
        .collect();
    assert_eq!(kit.batch(&batch, SECOND * 30).await, ["m-1", "m-2", "m-3"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_on_a_standard_queue_is_no_order() {
    let kit = Kit::new([]);
    let fair = |id: &str, job: &str| onlyonce::front::Message {
        group: Some("tenant".to_owned()),
        ..message(id, job, id, "{}")
    };
    let batch = [fair("one", "stumble"), fair("two", "echo")];
    assert_eq!(kit.batch(&batch, SECOND * 60).await, ["one"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_body_is_alone_in_its_trouble() {
    let kit = Kit::new([]);
    let mut bare = message("bare", "echo", "1", "{}");
    bare.body = None;
    assert_eq!(kit.batch(&[bare, message("good", "echo", "2", "{}")], SECOND * 60).await, NONE);
    assert_eq!(kit.queue.causes(), [("bare".to_owned(), "undecodable".to_owned())]);
}
