//! Lanes side by side: each is begun only once there is room for it, so that what a batch takes beside
//! its messages does not grow with their number.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// How many may wait for others of their key beside those that run.
const MOST_WAITING: usize = 256;

/// Begins as many as may run at once; those that wait for others do not count.
pub(super) struct SideBySide<'a, I: Iterator> {
    left: I,
    begun: FuturesUnordered<I::Item>,
    at_once: usize,
    waiting: &'a AtomicUsize,
}

impl<'a, I> SideBySide<'a, I>
where
    I: ExactSizeIterator<Item: Future>,
{
    /// `waiting` says how many of those begun wait.
    pub fn new(left: I, at_once: usize, waiting: &'a AtomicUsize) -> Self {
        Self { left, begun: FuturesUnordered::new(), at_once, waiting }
    }

    fn has_room(&self) -> bool {
        let waiting = self.waiting.load(Ordering::Relaxed).min(MOST_WAITING);
        self.begun.len() < self.at_once + waiting
    }

    /// What the next one to end came to; nothing once all have ended.
    pub async fn next(&mut self) -> Option<<I::Item as Future>::Output> {
        poll_fn(|cx| {
            loop {
                while self.has_room()
                    && let Some(next) = self.left.next()
                {
                    self.begun.push(next);
                }
                let ended = self.begun.poll_next_unpin(cx);
                // One that began to wait makes room for another.
                if ended.is_ready() || !self.has_room() || self.left.len() == 0 {
                    return ended;
                }
            }
        })
        .await
    }
}
