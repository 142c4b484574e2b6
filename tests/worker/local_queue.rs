//! The local queue and its poller: at least once, as SQS and Lambda are.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::front::Message;
use onlyonce::local::{Drained, LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::Status;
use onlyonce::runtime::Clock;
use onlyonce::test_util::VirtualClock;
use serde_json::json;

use crate::kit::{Kit, SECOND, START, in_group, message};

fn queue(name: &str, clock: &Arc<VirtualClock>) -> LocalQueue {
    let settings = QueueSettings { name: name.to_owned(), max_receives: 5, ..Default::default() };
    LocalQueue::new(settings, clock.clone())
}

fn clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new(START))
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().filter_map(|message| message.body.as_deref()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_received_message_is_hidden_and_comes_back_under_a_new_receipt() {
    let clock = clock();
    let queue = queue("q", &clock);
    queue.send("echo", "k", "{}");
    let first = queue.receive(10);
    assert_eq!((first.len(), queue.receive(10).len()), (1, 0));
    clock.sleep_until(START + SECOND * 180).await;
    let second = queue.receive(10);
    assert_eq!((second[0].id.as_str(), second[0].sent_at), (first[0].id.as_str(), Some(START)));
    // The old receipt deletes nothing and hides nothing.
    assert!(!queue.delete(first[0].receipt.as_ref().unwrap()));
    queue.change_visibility(first[0].receipt.as_ref().unwrap(), Duration::ZERO);
    assert_eq!(queue.receive(10).len(), 0);
    assert!(queue.delete(second[0].receipt.as_ref().unwrap()));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_its_receives_a_message_is_dead_and_redriven_under_a_new_id_and_time() {
    let clock = clock();
    let queue = queue("q", &clock);
    let id = queue.send("echo", "k", "{}");
    for _ in 0..5 {
        assert_eq!(queue.receive(10).len(), 1);
        clock.sleep_until(clock.now() + SECOND * 180).await;
    }
    assert_eq!((queue.receive(10).len(), queue.dead().len()), (0, 1));
    assert_eq!(queue.redrive(), 1);
    let again = queue.receive(10);
    assert_ne!(again[0].id, id);
    assert_eq!(again[0].sent_at, Some(clock.now()));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_waits_for_its_hidden_messages() {
    let clock = clock();
    let queue = queue("q.fifo", &clock);
    for (group, body) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3")] {
        queue.send_message(in_group(group, message("", "echo", body, body)));
    }
    let first = queue.receive(2);
    assert_eq!(bodies(&first), ["a1", "a2"]);
    assert_eq!(bodies(&queue.receive(10)), ["b1"]);
    for message in &first {
        queue.delete(message.receipt.as_ref().unwrap());
    }
    assert_eq!(bodies(&queue.receive(10)), ["a3"]);
}

#[tokio::test(start_paused = true)]
async fn a_poller_waits_for_a_fifo_group_with_one_hidden_message() {
    let kit = Kit::new([]);
    let queue = queue("q.fifo", &kit.clock);
    for body in ["1", "2"] {
        queue.send_message(in_group("a", message("", "echo", body, body)));
    }
    // The first is hidden, the second is not: nothing can be received yet, and time goes on.
    assert_eq!(queue.receive(1).len(), 1);
    assert_eq!(queue.next_visible(), Some(START + SECOND * 180));
    let drained = Poller::default().drain(&queue, &kit.worker).await;
    assert_eq!((drained.deleted, kit.clock.now().since(START)), (2, SECOND * 180));
}

#[tokio::test(start_paused = true)]
async fn a_worker_drains_it_with_duplicates_retries_and_dead_letters() {
    let kit = Kit::new([]);
    let queue = queue("q", &kit.clock);
    for _ in 0..4 {
        queue.send("echo", "twice", "{\"a\":1}");
    }
    queue.send("refuse", "no", "{}");
    queue.send("stumble", "thrice", "{}");
    let drained = Poller::default().drain(&queue, &kit.worker).await;
    assert!(queue.is_empty());
    assert_eq!((drained.deleted, drained.dead), (6, 2));
    // Once per key, but for the one that was tried three times.
    assert_eq!(kit.runs.count(), 1 + 1 + 3);
    assert_eq!(kit.record("stumble", "thrice").await.unwrap().status, Status::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_killed_invocation_deletes_nothing_and_its_messages_come_again() {
    let kit = Kit::new([]);
    let queue = queue("q", &kit.clock);
    queue.send("echo", "k", "{}");
    let killed = Poller::default()
        .run(&queue, async |invocation| {
            // The first dies; so does one that outlives its time.
            match queue.deliveries() {
                1 => None,
                2 => std::future::pending().await,
                _ => {
                    assert!(invocation.event.contains("\"idempotency-key\""));
                    Some(json!({ "batchItemFailures": [] }))
                }
            }
        })
        .await;
    assert_eq!(killed, Drained { deliveries: 3, deleted: 1, dead: 0 });
    assert_eq!(kit.clock.now().since(START), SECOND * 360);
}
