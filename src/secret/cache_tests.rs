//! What is read when, in virtual time, from a vault that counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::error::ErrorKind;
use crate::protocol::Failure;
use crate::test_util::VirtualClock;

const SECOND: Duration = Duration::from_secs(1);

/// Answers what it is told, in order, the last for ever; each read takes a second.
struct Counted {
    clock: VirtualClock,
    answers: Mutex<VecDeque<Result<Option<&'static str>, ErrorKind>>>,
    reads: Arc<AtomicUsize>,
}

#[async_trait]
impl Vault for Counted {
    async fn fetch(&self, _: &KeptIn) -> Result<Option<String>, Error> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.clock.sleep_until(self.clock.now() + SECOND).await;
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() };
        match answer.unwrap() {
            Ok(value) => Ok(value.map(str::to_owned)),
            Err(kind) => Err(Error::new(kind, "read")),
        }
    }
}

struct Kit {
    secrets: Secrets,
    clock: VirtualClock,
    reads: Arc<AtomicUsize>,
}

impl Kit {
    fn new<const N: usize>(answers: [Result<Option<&'static str>, ErrorKind>; N]) -> Self {
        let clock = VirtualClock::new(Timestamp::from_millis(1_900_000_000_000));
        let reads: Arc<AtomicUsize> = Arc::default();
        let vault = Counted {
            clock: clock.clone(),
            answers: Mutex::new(answers.into()),
            reads: reads.clone(),
        };
        Self { secrets: Secrets::new(Box::new(vault)), clock, reads }
    }

    async fn get(&self, name: &str) -> Result<Reading, HandlerError> {
        let place = KeptIn::Ssm(name.to_owned());
        self.secrets.get(&place, &self.clock, self.clock.now() + SECOND * 5).await
    }

    async fn refused(&self, name: &str, used: &Reading) -> Refused {
        let place = KeptIn::Ssm(name.to_owned());
        let until = self.clock.now() + SECOND * 5;
        self.secrets.refused(&place, used, &self.clock, until).await.unwrap()
    }

    async fn wait(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now() + time).await;
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_is_read_once_for_all_who_ask_and_again_after_five_minutes() {
    let kit = Kit::new([Ok(Some("one")), Ok(Some("two"))]);
    let asked = (0..20).map(|_| kit.get("/a"));
    let all = futures_util::future::join_all(asked).await;
    assert!(all.into_iter().all(|read| read.unwrap().value == "one"));
    kit.wait(SECOND * 298).await;
    assert_eq!(kit.get("/a").await.unwrap().value, "one");
    assert_eq!(kit.reads(), 1);
    kit.wait(SECOND * 2).await;
    assert_eq!(kit.get("/a").await.unwrap().value, "two");
    assert_eq!(kit.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_value_in_hand_waits_for_no_other() {
    let kit = Kit::new([Ok(Some("one"))]);
    kit.get("/a").await.unwrap();
    let begun = kit.clock.now();
    let (_, at) = tokio::join!(kit.get("/b"), async {
        kit.get("/a").await.unwrap();
        kit.clock.now()
    });
    assert_eq!(at, begun);
}

#[tokio::test(start_paused = true)]
async fn a_refused_value_is_read_again_at_most_once_a_minute() {
    let kit = Kit::new([Ok(Some("old")), Ok(Some("new")), Ok(Some("new"))]);
    let old = kit.get("/a").await.unwrap();
    kit.wait(SECOND * 29).await;
    let Refused::TooSoon(wait) = kit.refused("/a", &old).await else { panic!("too soon") };
    assert_eq!((wait, kit.reads()), (SECOND * 30, 1));
    kit.wait(wait).await;
    // All those that were refused with the old value find the new one, by one read.
    let refused = (0..20).map(|_| kit.refused("/a", &old));
    for refused in futures_util::future::join_all(refused).await {
        assert!(matches!(refused, Refused::Changed(now) if now.value == "new"));
    }
    assert_eq!(kit.reads(), 2);
    let new = kit.get("/a").await.unwrap();
    kit.wait(SECOND * 60).await;
    // And those that a value which has not changed was refused for are told so, by one read.
    let refused = (0..20).map(|_| kit.refused("/a", &new));
    for refused in futures_util::future::join_all(refused).await {
        assert!(matches!(refused, Refused::Unchanged));
    }
    assert_eq!(kit.reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_for_another_value_counts_too() {
    let kit = Kit::new([Ok(Some("old")), Err(ErrorKind::Secret)]);
    let old = kit.get("/a").await.unwrap();
    kit.wait(SECOND * 60).await;
    let until = kit.clock.now() + SECOND * 5;
    let place = KeptIn::Ssm("/a".to_owned());
    assert!(kit.secrets.refused(&place, &old, &kit.clock, until).await.is_err());
    assert!(matches!(kit.refused("/a", &old).await, Refused::TooSoon(_)));
    assert_eq!(kit.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_retryable_names_the_parameter_and_is_asked_for_again() {
    let bad = "value\nwith a line's end";
    let kit =
        Kit::new([Err(ErrorKind::Secret), Ok(Some(bad)), Ok(Some("")), Ok(None), Ok(Some("v"))]);
    for _ in 0..4 {
        let error = kit.get("/shop/token").await.unwrap_err();
        assert_eq!(error.failure(), &Failure::Retryable);
        assert!(error.message().contains("/shop/token"), "{}", error.message());
        assert!(!error.message().contains("value\n"), "{}", error.message());
    }
    assert_eq!(kit.get("/shop/token").await.unwrap().value, "v");
}

#[tokio::test(start_paused = true)]
async fn reading_ends_in_time() {
    let kit = Kit::new([Ok(Some("v"))]);
    let begun = kit.clock.now();
    let place = KeptIn::SecretsManager("shop".to_owned());
    let until = begun + SECOND / 2;
    let error = kit.secrets.get(&place, &kit.clock, until).await.unwrap_err();
    assert_eq!((kit.clock.now(), error.failure()), (until, &Failure::Retryable));
    // And leaves nobody waiting.
    assert_eq!(kit.get("/a").await.unwrap().value, "v");
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_hundred_are_kept() {
    let kit = Kit::new([Ok(Some("v"))]);
    for n in 0..=MAX_KEPT {
        kit.get(&n.to_string()).await.unwrap();
    }
    assert_eq!((kit.secrets.with(|kept| kept.len()), kit.reads()), (MAX_KEPT, MAX_KEPT + 1));
    kit.get(&MAX_KEPT.to_string()).await.unwrap();
    assert_eq!(kit.reads(), MAX_KEPT + 1);
    // The oldest went.
    kit.get("0").await.unwrap();
    assert_eq!(kit.reads(), MAX_KEPT + 2);
}

#[tokio::test(start_paused = true)]
async fn no_debug_output_shows_a_value() {
    let kit = Kit::new([Ok(Some("s3cret"))]);
    let reading = kit.get("/a").await.unwrap();
    let shown = format!("{reading:?} {:?}", reading.value());
    assert!(!shown.contains("s3cret"), "{shown}");
    let header = reqwest::header::AUTHORIZATION;
    let shown = format!(
        "{:?} {:?}",
        super::super::Secret::here(header.clone(), "s3cret"),
        super::super::Secret::kept_in(header, KeptIn::Ssm("/a".to_owned()))
    );
    assert!(!shown.contains("s3cret") && shown.contains("/a"), "{shown}");
}

/// A clock that was set back, or forth, by somebody.
struct Shifted(VirtualClock, Duration);

#[async_trait]
impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        self.0.now() - self.1
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.sleep_until(at + self.1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_does_not_keep_an_old_value() {
    let kit = Kit::new([Ok(Some("old")), Ok(Some("new"))]);
    let old = kit.get("a").await.unwrap();
    let back = Shifted(kit.clock.clone(), SECOND * 86_400);
    let place = KeptIn::Ssm("a".to_owned());
    let until = back.now() + SECOND * 5;
    let refused = kit.secrets.refused(&place, &old, &back, until).await.unwrap();
    assert!(matches!(refused, Refused::Changed(_)));
    let read = kit.secrets.get(&place, &back, back.now() + SECOND * 5).await.unwrap();
    assert_eq!(read.value(), "new");
}
