//! The outside world: providers that are slow, decline, forget, and lose answers. A request on its
//! way arrives whether somebody still waits for it or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::effect::Probe;
use onlyonce::protocol::Timestamp;
use onlyonce::runtime::Clock;
use onlyonce::test_util::VirtualClock;
use onlyonce::{Context, EffectKey, HandlerError};

use super::faults::{Faults, Named};

/// The longest a request is under way.
pub const LAG: Duration = Duration::from_secs(20);
/// For how long an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// What the jobs declare of the provider's memory. It remembers longer than they say, as clocks
/// differ and requests are under way for a while.
pub const WINDOW: Duration = Duration::from_secs(90);
const MEMORY: Duration = Duration::from_secs(120);

const REQUESTS: u64 = 4;

/// How a provider treats a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Knows keys for ever.
    Keyed,
    /// Knows them for its window.
    Windowed,
    /// Knows no keys; finds what it has done by reference.
    Reference,
    /// Does what it is told.
    Plain,
}

#[derive(Clone)]
enum Answer {
    Done(u64),
    Declined,
    Failed,
    Unwilling,
    OtherRequest,
}

struct Known {
    since: Timestamp,
    request: u64,
    answer: Answer,
}

#[derive(Default)]
struct State {
    requests: u64,
    known: BTreeMap<String, Known>,
    /// By operation and effect: how often it was really done.
    done: BTreeMap<(String, &'static str), usize>,
}

pub struct Provider {
    faults: Arc<Faults>,
    clock: VirtualClock,
    state: Mutex<State>,
}

impl Provider {
    pub fn new(faults: Arc<Faults>, clock: VirtualClock) -> Arc<Self> {
        Arc::new(Self { faults, clock, state: Mutex::default() })
    }

    /// How often effects were really done.
    pub fn done(&self) -> BTreeMap<(String, &'static str), usize> {
        self.state.lock().unwrap().done.clone()
    }

    /// Sends a request and waits for its answer.
    pub async fn send(
        self: &Arc<Self>,
        cx: &Context,
        effect: &'static str,
        key: Option<EffectKey>,
        request: u64,
        manner: Manner,
    ) -> Result<u64, HandlerError> {
        let number = {
            let mut state = self.state.lock().unwrap();
            state.requests += 1;
            state.requests
        };
        let mut random = self.faults.random(REQUESTS, number);
        let is_lost = self.faults.hits(Named::SendLost, 2.0, &mut random);
        let is_late = self.faults.hits(Named::Late, 3.0, &mut random);
        let ms =
            if is_late { random.u64(1_000..LAG.as_millis() as u64) } else { random.u64(1..40) };
        let (tell, told) = tokio::sync::oneshot::channel();
        let (provider, id) = (self.clone(), cx.id().to_string());
        let key = key.map(|key| key.to_string());
        let mut at_provider = self.faults.random(REQUESTS + 1, number);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            if !is_lost {
                let _ = tell.send(provider.arrives(
                    (id, effect),
                    key,
                    request,
                    manner,
                    &mut at_provider,
                ));
            } else {
                std::future::pending().await
            }
        });
        let is_unheard = self.faults.hits(Named::SendReplyLost, 2.0, &mut random);
        let answered = tokio::time::timeout(PATIENCE, told).await;
        match answered {
            Ok(Ok((_, _))) if is_unheard => Err(HandlerError::retryable("the connection broke")),
            Ok(Ok((Answer::Done(result), _))) => Ok(result),
            Ok(Ok((Answer::Declined, _))) => Err(HandlerError::rejected("declined")),
            Ok(Ok((Answer::OtherRequest, _))) => Err(HandlerError::mismatch("another request")),
            Ok(Ok((Answer::Unwilling, _))) => Err(HandlerError::retryable("throttled").not_sent()),
            // A failure that is replayed says nothing new, and never will.
            Ok(Ok((Answer::Failed, true))) => Err(HandlerError::unknown("it failed once")),
            Ok(Ok((Answer::Failed, false))) => Err(HandlerError::retryable("status 500")),
            Ok(Err(_)) | Err(_) => Err(HandlerError::retryable("no answer")),
        }
    }

    /// The request is there. Answers what is made of it, and whether that is a replay.
    fn arrives(
        &self,
        operation: (String, &'static str),
        key: Option<String>,
        request: u64,
        manner: Manner,
        random: &mut fastrand::Rng,
    ) -> (Answer, bool) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap();
        let remembers = |known: &&Known| match manner {
            Manner::Keyed => true,
            Manner::Windowed => now.since(known.since) < MEMORY,
            Manner::Reference | Manner::Plain => false,
        };
        let key = key.unwrap_or_default();
        if let Some(known) = state.known.get(&key).filter(remembers) {
            let is_same = known.request == request;
            return (if is_same { known.answer.clone() } else { Answer::OtherRequest }, true);
        }
        if self.faults.hits(Named::Unwilling, 2.0, random) {
            return (Answer::Unwilling, false);
        }
        let answer = if self.faults.hits(Named::Declined, 3.0, random) {
            Answer::Declined
        } else if self.faults.hits(Named::Replayed500, 2.0, random) {
            Answer::Failed
        } else {
            let done = state.done.entry(operation).or_default();
            *done += 1;
            Answer::Done(request * 10)
        };
        // A reference finds what was done, and nothing else.
        if manner != Manner::Reference || matches!(answer, Answer::Done(_)) {
            state.known.insert(key, Known { since: now, request, answer: answer.clone() });
        }
        (answer, false)
    }

    /// Asks what became of a request.
    pub async fn ask(&self, key: &EffectKey) -> Result<Probe<u64>, HandlerError> {
        let number = {
            let mut state = self.state.lock().unwrap();
            state.requests += 1;
            state.requests
        };
        let mut random = self.faults.random(REQUESTS + 2, number);
        tokio::time::sleep(Duration::from_millis(random.u64(1..40))).await;
        if self.faults.hits(Named::SendReplyLost, 2.0, &mut random) {
            return Err(HandlerError::retryable("no answer"));
        }
        if self.faults.hits(Named::CannotSay, 4.0, &mut random) {
            return Ok(Probe::Unknown);
        }
        let state = self.state.lock().unwrap();
        Ok(match state.known.get(key.as_str()).map(|known| &known.answer) {
            Some(Answer::Done(result)) => Probe::Done(*result),
            _ => Probe::NotDone,
        })
    }
}
