//! The calls of the protocol, each different one made once; what they answer is noted as reached.

use onlyonce::protocol::{
    Begin, Claim, ClaimRequest, ConditionalWrite, Conflict, Doubt, EffectKey, EffectRecord,
    EffectState, Fingerprint, Held, IdempotencyKey, Output, Record, RecordId, Said, Status,
    Timestamp, Verdict, after_error, begin, claim, complete, fail, keep_effects, mark_quarantined,
    resolve_conflict,
};

use crate::attempt::{Attempt, Came, Ended, Send, Why, Won};
use crate::config::{Config, LEASE, SKEW, stamp, tick, ticks};
use crate::coverage::{Point, reached};
use crate::interned::{Interned, Memo, Ref, claim_id};
use crate::told::{Told, refusal, row, told};
use crate::world::GENERATIONS;

type W = Ref<ConditionalWrite>;
type H = Ref<Held>;
type R = Option<Ref<Record>>;

#[derive(Default)]
pub struct Calls {
    claims: Memo<(R, Asked, i16), Claimed>,
    begins: Memo<(H, u8, Option<u8>, i16), Noted>,
    errors: Memo<(H, u8, Said, bool, bool), H>,
    done: Memo<(H, u8, i16), H>,
    begun_again: Memo<(H, u8, i16), H>,
    kept: Memo<(H, i16), W>,
    ends: Memo<(H, Came, i16), (W, Ended)>,
    fused: Memo<(W, W), W>,
    marks: Memo<H, W>,
    applied: Memo<(W, R), R>,
    resolved: Memo<(W, R), bool>,
    advanced: Memo<H, H>,
}

/// What makes a claim's request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Asked {
    message: u8,
    claim: u8,
    started: i16,
    sent: i16,
}

#[derive(Clone, Copy)]
pub enum Claimed {
    Take(W, Won),
    Held(H),
    Refused(Told),
}

/// How an effect begins, the claim with a note of it, and whether there is one.
type Noted = (Begun, H, bool);

#[derive(Clone, Copy)]
pub enum Begun {
    Done,
    Run(Send),
    Open { send: Send, first_sent: i16, why: Why },
}

/// The name of effect `n`.
pub fn name(n: u8) -> &'static str {
    ["charge", "receipt"][usize::from(n)]
}

impl Calls {
    pub fn claim(
        &self,
        config: &Config,
        record: Option<Ref<Record>>,
        attempt: &Attempt,
        now: i16,
    ) -> Claimed {
        let Attempt { message, claim: id, started, sent, .. } = *attempt;
        let asked = Asked { message, claim: id, started, sent };
        self.claims.get((record, asked, now), || {
            let request = request(config, asked);
            let before = record.map(Ref::get);
            let decision = claim(before.cloned(), &request, stamp(now));
            reached(row(before, &decision));
            match decision {
                Claim::Take { write, held } => {
                    Claimed::Take(write.interned(), Won::Held(held.interned()))
                }
                Claim::Spend { write, parked } => {
                    let is_unknown = parked.status == Status::Unknown;
                    let ended = if is_unknown { Ended::Unknown } else { Ended::Failed };
                    let parked = Held::of(&parked).interned();
                    Claimed::Take(write.interned(), Won::Parked(parked, ended))
                }
                Claim::Held(held) => Claimed::Held(held.interned()),
                refused => Claimed::Refused(told(refusal(refused, &request), now)),
            }
        })
    }

    /// Begins an effect, and notes it as `Context::begin` does; says whether there is a note.
    pub fn begin(&self, config: &Config, held: H, effect: u8, body: Option<u8>, now: i16) -> Noted {
        self.begins.get((held, effect, body, now), || {
            let print = body.map(|body| Fingerprint::of(&[body]));
            let class = config.effects[usize::from(effect)].class();
            let (begun, note) = begin(held.get(), name(effect), class, print.as_ref(), stamp(now));
            let id = &held.get().id;
            let generation = |key: &EffectKey| {
                let mut all = 0..GENERATIONS as u64;
                let found = all.find(|n| EffectKey::new(id, name(effect), *n) == *key);
                u8::try_from(found.expect("a key of another effect, or of no generation")).unwrap()
            };
            let begun = match &begun {
                Begin::Done(_) => {
                    reached(Point::BeginDone);
                    Begun::Done
                }
                Begin::Run { key, sent_since } => {
                    let generation = generation(key);
                    reached(match (sent_since, generation) {
                        (Some(_), _) => Point::BeginAgain,
                        (None, 0) => Point::BeginFirst,
                        (None, _) => Point::BeginAnew,
                    });
                    Begun::Run(Send { generation, was_sent: sent_since.is_some() })
                }
                Begin::Open { key, first_sent, why } => {
                    reached(match why {
                        Doubt::Intent => Point::DoubtIntent,
                        Doubt::ResultLost => Point::DoubtResult,
                        Doubt::WindowOver => Point::DoubtWindow,
                        Doubt::OtherRequest => Point::DoubtRequest,
                    });
                    let send = Send { generation: generation(key), was_sent: false };
                    Begun::Open { send, first_sent: tick(*first_sent), why: (*why).into() }
                }
            };
            let is_noted = note.is_some();
            (begun, noted(held, effect, note), is_noted)
        })
    }

    /// What is remembered after an error, as `Context::failed` does.
    pub fn after_error(&self, held: H, effect: u8, said: Said, ended: (bool, bool)) -> H {
        let (is_final, was_sent) = ended;
        self.errors.get((held, effect, said, is_final, was_sent), || {
            let before = held.get().effects.get(name(effect)).cloned();
            let after = before.map(|before| {
                let state = after_error(before.state, said, is_final, was_sent);
                reached(match state {
                    EffectState::Intent => Point::LeftIntent,
                    EffectState::Sent | EffectState::Done => Point::LeftSent,
                    EffectState::Unsent => Point::LeftUnsent,
                    EffectState::Rejected => Point::LeftRejected,
                });
                EffectRecord { state, ..before }
            });
            noted(held, effect, after)
        })
    }

    /// What is remembered of an effect that is done, as `Context::done` does.
    pub fn done(&self, config: &Config, held: H, effect: u8, begun: i16) -> H {
        self.done.get((held, effect, begun), || {
            let before = held.get().effects.get(name(effect));
            let generation = before.map_or(0, |before| before.generation);
            let sent = before.filter(|before| before.state.may_have_happened());
            let first_sent = sent.map_or(stamp(begun), |before| before.first_sent);
            let result = config.keeps_results.then(|| "1".to_owned());
            let state = EffectState::Done;
            let done = EffectRecord { state, generation, first_sent, request: None, result };
            noted(held, effect, Some(done))
        })
    }

    /// What is remembered of an effect begun once more, as `Context::begin_again` does.
    pub fn begin_again(&self, config: &Config, held: H, effect: u8, now: i16) -> H {
        self.begun_again.get((held, effect, now), || {
            let is_keyed = config.effects[usize::from(effect)].is_keyed();
            let state = if is_keyed { EffectState::Sent } else { EffectState::Intent };
            let before = held.get().effects.get(name(effect)).cloned();
            let first_sent = stamp(now);
            let again = before.map(|old| EffectRecord { state, first_sent, result: None, ..old });
            noted(held, effect, again)
        })
    }

    pub fn keep_effects(&self, held: H, now: i16) -> W {
        self.kept.get((held, now), || keep_effects(held.get(), stamp(now)).interned())
    }

    /// What is written of an attempt's end, as `Run::end` does.
    pub fn end(&self, config: &Config, held: H, came: Came, now: i16) -> (W, Ended) {
        self.ends.get((held, came, now), || {
            let at = stamp(now);
            let (write, verdict) = match came.failure() {
                None => complete(held.get(), Output::Omitted, config.retention(), at),
                Some(failure) => {
                    let policy = (&config.retry(), config.retention());
                    fail(held.get(), &failure, "no".to_owned(), policy, at, 1.0)
                }
            };
            let (point, ended) = match verdict {
                Verdict::Completed(_) => (Point::Completed, Ended::Completed),
                Verdict::Released { retry_at } => {
                    (Point::Released, Ended::Released(tick(retry_at)))
                }
                Verdict::Failed => (Point::Failed, Ended::Failed),
                Verdict::Unknown if came == Came::Ok => (Point::PassedOver, Ended::Unknown),
                Verdict::Unknown => (Point::Unknown, Ended::Unknown),
            };
            reached(point);
            (write.interned(), ended)
        })
    }

    pub fn then(&self, first: W, next: W) -> W {
        self.fused.get((first, next), || first.get().clone().then(next.get()).interned())
    }

    pub fn mark_quarantined(&self, parked: H) -> W {
        self.marks.get(parked, || mark_quarantined(parked.get()).interned())
    }

    /// The record after a write; `None` if its condition does not hold.
    pub fn apply(&self, write: W, record: Option<Ref<Record>>) -> Option<Ref<Record>> {
        self.applied.get((write, record), || {
            write.get().apply(record.map(Ref::get)).map(Interned::interned)
        })
    }

    /// Whether a write that met a conflict had landed before.
    pub fn resolve(&self, write: W, record: Option<Ref<Record>>) -> bool {
        self.resolved.get((write, record), || {
            let conflict = resolve_conflict(write.get(), record.map(Ref::get));
            let is_applied = conflict == Conflict::Applied;
            reached(if is_applied { Point::ConflictApplied } else { Point::ConflictLost });
            is_applied
        })
    }

    pub fn advanced(&self, held: H) -> H {
        self.advanced.get(held, || held.get().clone().advanced().interned())
    }
}

/// The record's identity.
pub fn record_id(key: u8) -> (IdempotencyKey, RecordId) {
    let key = IdempotencyKey::new(format!("k{key}")).expect("a key");
    let id = RecordId::new("model", "job", &key);
    (key, id)
}

fn request(config: &Config, asked: Asked) -> ClaimRequest {
    let (key, payload, _) = config.messages[usize::from(asked.message)];
    let (key, id) = record_id(key);
    ClaimRequest {
        id,
        namespace: "model".to_owned(),
        job: "job".to_owned(),
        key,
        fingerprint: Some(Fingerprint::of(&[payload])),
        claim_id: claim_id(asked.claim),
        lease_until: stamp(asked.started + LEASE),
        skew: ticks(SKEW),
        retry: config.retry(),
        retention: config.retention(),
        enqueued_at: Some(stamp(asked.sent)),
        message_id: None,
    }
}

fn noted(held: H, effect: u8, note: Option<EffectRecord>) -> H {
    let Some(note) = note else { return held };
    let mut held = held.get().clone();
    held.effects.insert(name(effect).to_owned(), note);
    held.interned()
}

/// How far a worker's attempt may go.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The handler is stopped.
    pub stop: Timestamp,
    /// No record is written any more.
    pub until: Timestamp,
}

impl Limits {
    /// As `Worker::attempt` makes them, where the invocation ends with the lease.
    pub fn of(attempt: &Attempt) -> Self {
        let (now, hard) = (stamp(attempt.started), stamp(attempt.started + LEASE));
        let deadline = onlyonce::service::Deadline::new(now, hard);
        let stop = deadline.stop.min(onlyonce::protocol::handler_stop(now, hard));
        Self { stop, until: deadline.settled.min(hard) }
    }
}
