//! Group commit: what is asked for at the same moment is sent in one request.
//!
//! Whoever asks first opens a group and gives up its turn, so that all that became ready together
//! joins. While as many requests are under way as may be, the next group gathers. Nobody waits for a
//! timer, and nothing is sent that nobody waits for: a group lives as long as one of its members.

mod line;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;

use self::line::{Line, Lines};
use crate::protocol::RecordId;
use crate::runtime::spawn;

/// What a request is made of.
pub(crate) trait Requests: Send + Sync + 'static {
    /// What one member asks for.
    type Asked: Send + 'static;
    /// What it is answered.
    type Answer: Send + 'static;

    /// Sends one request and answers each member, in their order.
    fn send(&self, asked: Vec<Self::Asked>) -> impl Future<Output = Vec<Self::Answer>> + Send;
}

/// What becomes of a member.
pub(crate) enum Told<B> {
    /// It went with others.
    Together(B),
    /// Nobody else was there: it is to be sent by itself, and this kept meanwhile.
    Alone(Turn),
    /// It went with others, and their request broke off.
    Lost,
}

/// A lone member's right to have its request under way.
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    _line: Line,
}

/// Gathers what is asked for.
pub(crate) struct Gather<R: Requests> {
    requests: Arc<R>,
    most: usize,
    under_way: Arc<Semaphore>,
    lines: Lines,
    open: Arc<Mutex<Option<Open<R>>>>,
}

/// The group that takes members.
struct Open<R: Requests> {
    seats: Seats<R>,
    going: WeakShared<Going<R>>,
}

/// What members have asked for; `None` once it is sent, or where its member has left.
type Seats<R> = Arc<Mutex<Vec<Option<<R as Requests>::Asked>>>>;
/// What became of each seat, until its member takes it.
type Answers<R> = Arc<Mutex<Vec<Option<Answer<<R as Requests>::Answer>>>>>;
type Going<R> = BoxFuture<'static, Answers<R>>;

enum Answer<B> {
    Together(B),
    Alone(Option<OwnedSemaphorePermit>),
}

impl<R: Requests> Gather<R> {
    /// At most `most` go in one request, and at most `at_once` requests are under way.
    pub fn new(requests: R, most: usize, at_once: usize) -> Self {
        Self {
            requests: Arc::new(requests),
            most,
            under_way: Arc::new(Semaphore::new(at_once)),
            lines: Lines::default(),
            open: Arc::default(),
        }
    }

    /// Asks, together with whoever else is about to; after what was asked of this record before.
    /// Dropped before its group is sent, it is not sent.
    pub async fn ask(&self, id: &RecordId, asked: R::Asked) -> Told<R::Answer> {
        let line = self.lines.stand(id).await;
        let (going, seat, starts) = self.join(asked);
        if let Some(starts) = starts {
            yield_now().await;
            drop(starts);
        }
        let answers = going.await;
        let answer = locked(&answers).get_mut(seat.at).and_then(Option::take);
        match answer {
            Some(Answer::Together(answer)) => Told::Together(answer),
            Some(Answer::Alone(_permit)) => Told::Alone(Turn { _permit, _line: line }),
            None => Told::Lost,
        }
    }

    /// The group, a seat in it and, for its first member, what starts it: as it is dropped, so that
    /// it starts also where the first one leaves.
    fn join(&self, asked: R::Asked) -> (Shared<Going<R>>, Seat<R>, Option<oneshot::Sender<()>>) {
        let mut open = locked(&self.open);
        if let Some(group) = open.as_ref()
            && let Some(going) = group.going.upgrade()
        {
            let seats = group.seats.clone();
            let mut taken = locked(&seats);
            let at = taken.len();
            taken.push(Some(asked));
            drop(taken);
            if at + 1 >= self.most {
                *open = None;
            }
            return (going, Seat { seats, at }, None);
        }
        let seats: Seats<R> = Arc::new(Mutex::new(vec![Some(asked)]));
        let (starts, started) = oneshot::channel();
        let going = self.go(seats.clone(), started).boxed().shared();
        *open = going.downgrade().map(|going| Open { seats: seats.clone(), going });
        (going, Seat { seats, at: 0 }, Some(starts))
    }

    /// The way of a group, which its members walk together.
    fn go(
        &self,
        seats: Seats<R>,
        started: oneshot::Receiver<()>,
    ) -> impl Future<Output = Answers<R>> + Send + 'static {
        let (requests, open) = (self.requests.clone(), self.open.clone());
        let under_way = self.under_way.clone();
        async move {
            // Nothing is ever said but by the sender's end.
            let _ = started.await;
            // It is never closed.
            let permit = under_way.acquire_owned().await.ok();
            close(&open, &seats);
            let mut asked: Vec<_> = locked(&seats).iter_mut().map(Option::take).collect();
            let mut answers: Vec<_> = asked.iter().map(|_| None).collect();
            let here: Vec<_> = (0..asked.len()).filter(|at| is_there(&asked, *at)).collect();
            if let [alone] = here[..] {
                if let Some(slot) = answers.get_mut(alone) {
                    *slot = Some(Answer::Alone(permit));
                }
            } else if !here.is_empty() {
                let asked = asked.iter_mut().filter_map(Option::take).collect();
                // In a task of its own: whoever of its members is slow or leaves does not hold it up.
                let mut sending = spawn(async move {
                    let answers = requests.send(asked).await;
                    drop(permit);
                    answers
                });
                for (at, answer) in here.into_iter().zip(sending.join().await.unwrap_or_default()) {
                    if let Some(slot) = answers.get_mut(at) {
                        *slot = Some(Answer::Together(answer));
                    }
                }
            }
            Arc::new(Mutex::new(answers))
        }
    }
}

fn is_there<A>(asked: &[Option<A>], at: usize) -> bool {
    asked.get(at).is_some_and(Option::is_some)
}

/// Lets nobody join any more.
fn close<R: Requests>(open: &Mutex<Option<Open<R>>>, seats: &Seats<R>) {
    let mut open = locked(open);
    if open.as_ref().is_some_and(|group| Arc::ptr_eq(&group.seats, seats)) {
        *open = None;
    }
}

/// A member's place, given up where nobody waits for it any more.
struct Seat<R: Requests> {
    seats: Seats<R>,
    at: usize,
}

impl<R: Requests> Drop for Seat<R> {
    fn drop(&mut self) {
        if let Some(seat) = locked(&self.seats).get_mut(self.at) {
            seat.take();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
