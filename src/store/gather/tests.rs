//! What goes together, in which order, and what happens to the others where one leaves.

use std::pin::pin;

use futures_util::future::{join_all, poll_immediate};

use super::*;
use crate::protocol::IdempotencyKey;

/// Answers each member with itself, once it may.
struct Echo {
    sent: Arc<Mutex<Vec<Vec<u32>>>>,
    may: Arc<Semaphore>,
}

impl Requests for Echo {
    type Asked = u32;
    type Answer = u32;

    async fn send(&self, asked: Vec<u32>) -> Vec<u32> {
        locked(&self.sent).push(asked.clone());
        assert!(!asked.contains(&PANICS));
        let _turn = self.may.acquire().await.unwrap();
        asked
    }
}

const PANICS: u32 = 999;

struct Desk {
    gather: Gather<Echo>,
    sent: Arc<Mutex<Vec<Vec<u32>>>>,
    may: Arc<Semaphore>,
}

impl Desk {
    fn new(most: usize, at_once: usize) -> Self {
        let (sent, may) = (Arc::default(), Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)));
        let echo = Echo { sent: Arc::clone(&sent), may: may.clone() };
        Self { gather: Gather::new(echo, most, at_once), sent, may }
    }

    /// Nothing is answered until [`Self::answer`].
    async fn silent(most: usize, at_once: usize) -> Self {
        let desk = Self::new(most, at_once);
        desk.may.forget_permits(Semaphore::MAX_PERMITS);
        desk
    }

    fn answer(&self) {
        self.may.add_permits(1);
    }

    /// What came back: itself, or nothing for one that was alone; a broken request is `u32::MAX`.
    async fn ask(&self, record: u32, asked: u32) -> Option<u32> {
        match self.gather.ask(&id(record), asked).await {
            Told::Together(answer) => Some(answer),
            Told::Alone(_turn) => None,
            Told::Lost => Some(u32::MAX),
        }
    }

    fn sent(&self) -> Vec<Vec<u32>> {
        locked(&self.sent).clone()
    }

    fn is_idle(&self) -> bool {
        let open = locked(&self.gather.open);
        let is_left = open.as_ref().is_none_or(|group| group.going.upgrade().is_none());
        is_left && self.gather.lines.is_empty()
    }
}

fn id(record: u32) -> RecordId {
    RecordId::new("default", "job", &IdempotencyKey::new(record.to_string()).unwrap())
}

async fn a_few_turns() {
    for _ in 0..8 {
        yield_now().await;
    }
}

#[tokio::test]
async fn what_is_ready_together_goes_together_and_each_has_its_own_answer() {
    let desk = Desk::new(25, 4);
    let answers = join_all((0..10).map(|n| desk.ask(n, n))).await;
    assert_eq!(answers, (0..10).map(Some).collect::<Vec<_>>());
    assert_eq!(desk.sent(), [(0..10).collect::<Vec<_>>()]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_lone_one_is_told_so_and_nothing_is_sent_for_it() {
    let desk = Desk::new(25, 4);
    assert_eq!(desk.ask(1, 1).await, None);
    assert!(desk.sent().is_empty() && desk.is_idle());
}

#[tokio::test]
async fn more_than_a_request_takes_are_several() {
    let desk = Desk::new(25, 4);
    join_all((0..60).map(|n| desk.ask(n, n))).await;
    let mut sizes: Vec<_> = desk.sent().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [10, 25, 25]);
}

#[tokio::test]
async fn while_as_many_are_under_way_as_may_be_the_next_gathers() {
    let desk = Desk::silent(25, 1).await;
    let first = join_all([desk.ask(1, 1), desk.ask(2, 2)]);
    let others = async {
        a_few_turns().await;
        // One after another: without the one under way each would be alone.
        let mut three = pin!(desk.ask(3, 3));
        assert!(poll_immediate(&mut three).await.is_none());
        a_few_turns().await;
        let mut four = pin!(desk.ask(4, 4));
        assert!(poll_immediate(&mut four).await.is_none());
        a_few_turns().await;
        assert_eq!(desk.sent(), [[1, 2]]);
        desk.answer();
        desk.answer();
        tokio::join!(three, four)
    };
    let (_, others) = tokio::join!(first, others);
    assert_eq!(others, (Some(3), Some(4)));
    assert_eq!(desk.sent(), [[1, 2], [3, 4]]);
}

#[tokio::test]
async fn one_record_is_in_no_request_twice_and_its_writes_keep_their_order() {
    let desk = Desk::new(25, 4);
    let writes = (0..12).map(|n| desk.ask(n % 3, n));
    let answers = join_all(writes).await;
    assert_eq!(answers, (0..12).map(Some).collect::<Vec<_>>());
    assert_eq!(desk.sent(), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn who_leaves_before_the_request_is_not_in_it_and_the_others_are() {
    for leaves in 0..3 {
        let desk = Desk::new(25, 4);
        let mut members: Vec<_> = (0..3).map(|n| Box::pin(desk.ask(n, n))).collect();
        for member in &mut members {
            assert!(poll_immediate(member).await.is_none());
        }
        drop(members.remove(leaves));
        let answers = join_all(members).await;
        let stay: Vec<_> = (0..3).filter(|n| *n as usize != leaves).collect();
        assert_eq!(answers, stay.iter().copied().map(Some).collect::<Vec<_>>(), "{leaves}");
        assert_eq!(desk.sent(), [stay]);
        assert!(desk.is_idle());
    }
}

#[tokio::test]
async fn who_leaves_while_it_is_under_way_takes_nobodys_answer_along() {
    let desk = Desk::silent(25, 4).await;
    let mut members: Vec<_> = (0..3).map(|n| Box::pin(desk.ask(n, n))).collect();
    for member in &mut members {
        assert!(poll_immediate(member).await.is_none());
    }
    a_few_turns().await;
    for member in &mut members {
        assert!(poll_immediate(member).await.is_none());
    }
    a_few_turns().await;
    assert_eq!(desk.sent(), [[0, 1, 2]]);
    drop(members.remove(0));
    desk.answer();
    assert_eq!(join_all(members).await, [Some(1), Some(2)]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_ends() {
    let desk = Desk::silent(25, 1).await;
    let mut members: Vec<_> = (0..3).map(|n| Box::pin(desk.ask(n, n))).collect();
    for _ in 0..2 {
        for member in &mut members {
            assert!(poll_immediate(member).await.is_none());
        }
        a_few_turns().await;
    }
    assert_eq!(desk.sent().len(), 1);
    drop(members);
    // Its place is free again.
    desk.answer();
    desk.answer();
    assert_eq!(join_all([desk.ask(7, 7), desk.ask(8, 8)]).await, [Some(7), Some(8)]);
    assert!(desk.is_idle());
}

#[tokio::test]
async fn a_request_that_breaks_off_is_an_answer_to_all_of_it() {
    let desk = Desk::new(25, 1);
    let answers = join_all([desk.ask(1, 1), desk.ask(2, PANICS)]).await;
    assert_eq!(answers, [Some(u32::MAX), Some(u32::MAX)]);
    assert_eq!(join_all([desk.ask(1, 1), desk.ask(2, 2)]).await, [Some(1), Some(2)]);
}

/// Members come, leave and come again by chance, over few records.
#[tokio::test]
async fn whoever_stays_is_answered_with_its_own_and_nothing_is_sent_twice() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let desk = Desk::new(1 + rng.usize(..5), 1 + rng.usize(..3));
        let (mut waiting, mut next) = (Vec::new(), 0);
        for _ in 0..60 {
            match rng.u8(..6) {
                0..=2 => {
                    waiting.push((next, Box::pin(desk.ask(rng.u32(..8), next))));
                    next += 1;
                }
                3 if !waiting.is_empty() => {
                    drop(waiting.swap_remove(rng.usize(..waiting.len())));
                }
                4 => yield_now().await,
                _ => {
                    for at in (0..waiting.len()).rev() {
                        if let Some(told) = poll_immediate(&mut waiting[at].1).await {
                            let (asked, _) = waiting.swap_remove(at);
                            assert!(told.is_none_or(|told| told == asked), "seed {seed}");
                        }
                    }
                }
            }
        }
        for (asked, told) in
            join_all(waiting.into_iter().map(async |(asked, it)| (asked, it.await))).await
        {
            assert!(told.is_none_or(|told| told == asked), "seed {seed}");
        }
        let mut sent = desk.sent().concat();
        let count = sent.len();
        sent.sort_unstable();
        sent.dedup();
        assert_eq!(sent.len(), count, "seed {seed}");
        assert!(desk.is_idle(), "seed {seed}");
    }
}
