//! The guide for producers: its Rust is `examples/enqueue.rs`. Its other languages are run in
//! `tests/e2e/test_producers.py`.

use std::fs;

use crate::queue::Queue;
use crate::{example, root, run};

#[tokio::test]
async fn the_guides_rust_runs_twice_and_its_job_once() {
    let guide = fs::read_to_string(root().join("src/docs/producers.md")).unwrap();
    let snippet = guide.split("```rust,no_run\n").nth(1).unwrap().split("```").next().unwrap();
    let file = fs::read_to_string(root().join("examples/enqueue.rs")).unwrap();
    let code = file.split_once("\n\n").unwrap().1;
    assert_eq!(snippet, code, "examples/enqueue.rs is what is run of the guide");

    let queue = Queue::new().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (status, said) =
            run::<&str>(example("enqueue").env("ONLYONCE_QUEUE_URL", &queue.url), &[]);
        assert_eq!(status, Some(0), "{said}");
        ids.push(said);
    }
    assert_ne!(ids[0], ids[1], "two messages");
    assert_eq!(queue.len().await, 2);
    let ran = queue.served("invoice.finalize").await;
    assert_eq!(ran, [serde_json::json!({"invoice": 42, "amount": 4200})]);
}
