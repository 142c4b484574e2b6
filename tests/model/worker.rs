//! What a worker does between two calls: as `service::attempt`, `service::run`, `service::fused`,
//! `Context` and the effects do, and with the same functions of the protocol.

use crate::actions::Wire;
use crate::attempt::{Answer, At, Attempt, Came, Won};
use crate::calls::Claimed;
use crate::config::{HIDDEN, TRIES, stamp};
use crate::interned::Ref;
use crate::model::Protocol;
use crate::told::{Told, told, told_of};
use crate::world::{Place, World, Write};
use onlyonce::protocol::Record;
use onlyonce::service::Ending;

/// An attempt at work: what it is, who does it and when.
pub struct Work<'a> {
    pub model: &'a Protocol,
    pub s: &'a mut World,
    pub worker: usize,
    pub a: Attempt,
    /// By the worker's clock.
    pub now: i16,
}

/// What a worker hears of a write.
enum Heard {
    Applied,
    Conflict(Option<Ref<Record>>),
    Refused,
    Nothing,
}

impl<'a> Work<'a> {
    /// A worker takes a message.
    pub fn receive(model: &'a Protocol, s: &'a mut World, worker: u8, message: u8) {
        let config = &model.config;
        let taken = &mut s.messages[usize::from(message)];
        taken.place = Place::Queued(HIDDEN);
        taken.receives += u8::from(config.receives > 0);
        let (sent, redriven) = (taken.sent, taken.redriven);
        let now = s.now + config.clocks[usize::from(worker)];
        let a = Attempt {
            message,
            redriven,
            claim: s.fresh_claim(),
            started: now,
            sent,
            held: None,
            in_doubt: None,
            has_unwritten: false,
            effect: 0,
            came: Came::Ok,
            tries: 0,
            at: At::Return,
        };
        let mut work = Self { model, s, worker: usize::from(worker), a, now };
        if !config.is_fused {
            work.claim(None);
        }
        work.put();
    }

    pub fn of(model: &'a Protocol, s: &'a mut World, worker: u8) -> Self {
        let worker = usize::from(worker);
        let a = s.workers[worker].expect("an attempt is under way");
        let now = s.now + model.config.clocks[worker];
        Self { model, s, worker, a, now }
    }

    pub fn put(mut self) {
        if let At::Tell(_) = self.a.at {
            (self.a.started, self.a.claim) = (0, 0);
        }
        self.s.workers[self.worker] = Some(self.a);
    }

    pub fn key(&self) -> usize {
        usize::from(self.model.config.messages[usize::from(self.a.message)].0)
    }

    pub fn payload(&self) -> u8 {
        self.model.config.messages[usize::from(self.a.message)].1
    }

    pub fn held(&self) -> Ref<onlyonce::protocol::Held> {
        self.a.held.expect("it is claimed")
    }

    /// Decides on the record as it was shown.
    pub fn claim(&mut self, record: Option<Ref<Record>>) {
        let model = self.model;
        self.a.tries = 0;
        match model.calls.claim(&model.config, record, &self.a, self.now) {
            Claimed::Take(write, won) => match won {
                Won::Held(held) if model.config.is_fused => {
                    let (end, verdict) =
                        model.calls.end(&model.config, held, self.a.came, self.now);
                    let write = model.calls.then(write, end);
                    self.a.at = At::Fused { write, verdict, held };
                }
                won => self.a.at = At::Claim { write, won },
            },
            Claimed::Held(_) if model.config.is_fused => self.told(told(Ending::StoreError, 0)),
            Claimed::Held(held) => self.begin(held),
            Claimed::Refused(told) => self.told(told),
        }
    }

    pub fn settle(&mut self) {
        let (config, calls) = (&self.model.config, &self.model.calls);
        let (write, verdict) = calls.end(config, self.held(), self.a.came, self.now);
        self.a.tries = 0;
        self.a.at = At::Settle { write, verdict };
    }

    /// The write that is to be sent.
    pub fn write(&self) -> Write {
        let write = match self.a.at {
            At::Claim { write, .. }
            | At::Settle { write, .. }
            | At::Fused { write, .. }
            | At::Mark { write } => write,
            _ => self.a.in_doubt.expect("effects are to be written"),
        };
        let key = u8::try_from(self.key()).expect("few");
        Write { write, key, is_staged: self.a.is_staged(&self.model.config) }
    }

    /// The write is sent; false if this cannot happen.
    pub fn store(&mut self, wire: Wire) -> bool {
        let write = self.write();
        let current = self.s.records[usize::from(write.key)];
        let holds = self.model.calls.apply(write.write, current).is_some();
        // One whose condition does not hold is lost in one way only.
        if !holds && !matches!(wire, Wire::Ok | Wire::RequestLost) {
            return false;
        }
        let heard = match wire {
            Wire::Ok if holds => {
                self.land(write);
                Heard::Applied
            }
            Wire::Ok => Heard::Conflict(current),
            Wire::RequestLost => Heard::Nothing,
            Wire::ReplyLost => {
                self.land(write);
                Heard::Nothing
            }
            Wire::Late => {
                self.s.late_write = Some(write);
                Heard::Nothing
            }
            Wire::Refused => Heard::Refused,
        };
        self.heard(write, heard);
        true
    }

    fn land(&mut self, write: Write) {
        if self.model.config.is_fused && write.is_staged {
            self.s.runs_with(self.key(), self.payload());
        }
        self.model.land(self.s, write);
    }

    /// The write is under way as the worker dies, or its handler is stopped.
    pub fn leave(&mut self, wire: Wire) -> bool {
        let write = self.write();
        let current = self.s.records[usize::from(write.key)];
        if self.model.calls.apply(write.write, current).is_none() {
            return false;
        }
        if wire == Wire::Late {
            self.s.late_write = Some(write);
        } else {
            self.land(write);
        }
        true
    }

    fn heard(&mut self, write: Write, heard: Heard) {
        if matches!(heard, Heard::Nothing) {
            self.a.tries += 1;
            if self.a.tries >= TRIES {
                self.gives_up();
            }
            return;
        }
        let calls = &self.model.calls;
        let is_mine = match heard {
            Heard::Applied => true,
            Heard::Conflict(current) => match self.a.at {
                At::Claim { .. } | At::Fused { .. } => return self.claim(current),
                _ => calls.resolve(write.write, current),
            },
            _ => false,
        };
        let is_refused = matches!(heard, Heard::Refused);
        match self.a.at {
            At::Claim { won: Won::Held(held), .. } => self.begin(held),
            At::Claim { won: Won::Parked(parked, ended), .. } => {
                self.told(told_of(ended, parked, self.now));
            }
            At::Flush { send } if is_mine => {
                self.a.held = Some(calls.advanced(self.held()));
                self.a.in_doubt = None;
                self.a.at = At::Send(send);
            }
            // The claim was lost to a successor: a late owner starts nothing more.
            At::Flush { .. } => self.ends(Came::Retryable),
            At::Certain if is_mine => {
                self.a.held = Some(calls.advanced(self.held()));
                self.a.in_doubt = None;
                self.settle();
            }
            At::Fused { .. } if is_refused => self.ends(Came::Terminal),
            At::Fused { verdict, held, .. } => self.told(told_of(verdict, held, self.now)),
            At::Settle { .. } if is_refused => {
                self.a.came = Came::Terminal;
                self.settle();
            }
            At::Settle { verdict, .. } if is_mine => {
                self.told(told_of(verdict, calls.advanced(self.held()), self.now));
            }
            At::Mark { .. } => self.a.at = At::Tell(Answer::Ack),
            _ => self.told(told(Ending::LostLease, self.now)),
        }
    }

    /// The outcome of the write at hand stays unknown.
    pub fn gives_up(&mut self) {
        match self.a.at {
            At::Flush { .. } => self.ends(Came::Retryable),
            At::Mark { .. } => self.a.at = At::Tell(Answer::Ack),
            _ => self.told(told(Ending::StoreError, self.now)),
        }
    }

    fn told(&mut self, told: Told) {
        self.a.tries = 0;
        self.a.at = match told {
            Told::Answer(answer) => At::Tell(answer),
            Told::Quarantine(mark) if self.model.config.has_dlq => At::Quarantine { mark },
            Told::Quarantine(_) => At::Tell(Answer::Retry(None)),
        };
        // What is not looked at any more need not tell worlds apart.
        self.a.held = None;
        self.a.in_doubt = None;
        self.a.has_unwritten = false;
        self.a.effect = 0;
        self.a.came = Came::Ok;
        self.a.sent = 0;
    }

    pub fn quarantine(&mut self, mark: Option<Ref<onlyonce::protocol::Held>>, wire: Wire) {
        let message = &mut self.s.messages[usize::from(self.a.message)];
        message.is_dead |= wire != Wire::RequestLost;
        self.a.at = match mark {
            _ if wire != Wire::Ok => At::Tell(Answer::Retry(None)),
            Some(parked) => At::Mark { write: self.model.calls.mark_quarantined(parked) },
            None => At::Tell(Answer::Ack),
        };
    }

    /// The queue hears what to do with the message, and the worker is free.
    pub fn tell(self, answer: Answer, is_heard: bool) {
        let message = &mut self.s.messages[usize::from(self.a.message)];
        // An old receipt says nothing of the new message that a redrive has made.
        let is_there =
            message.redriven == self.a.redriven && matches!(message.place, Place::Queued(_));
        if is_heard && is_there {
            match answer {
                Answer::Ack => message.place = Place::Gone,
                Answer::Retry(Some(at)) => {
                    message.place = Place::Queued(u8::try_from((at - self.now).max(0)).unwrap());
                }
                Answer::Retry(None) => {}
            }
        }
        self.s.workers[self.worker] = None;
    }

    /// Whether a claimed handler is at work.
    pub fn is_live(model: &Protocol, attempt: &Attempt, now: i16) -> bool {
        let is_in_time = stamp(now) < crate::calls::Limits::of(attempt).stop;
        !model.config.is_fused && attempt.is_in_handler() && is_in_time
    }
}
