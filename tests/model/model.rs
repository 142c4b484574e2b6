//! The state machine that is exhausted.

use stateright::{Model, Property};

use crate::actions::{Action, Midway, Reply, Wire};
use crate::attempt::{At, Came};
use crate::calls::Calls;
use crate::config::Config;
use crate::coverage::{Point, reached};
use crate::moves::actions;
use crate::properties;
use crate::worker::Work;
use crate::world::{MESSAGES, Place, World};

pub struct Protocol {
    pub config: Config,
    pub calls: Calls,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut s = World::new(self.config.faults, self.config.redrives);
        self.send_due(&mut s);
        // A place without a message is one that is done.
        for unused in self.config.messages.len()..MESSAGES {
            s.messages[unused].place = Place::Gone;
        }
        vec![s]
    }

    fn actions(&self, s: &World, out: &mut Vec<Action>) {
        // What is broken needs no further look.
        if s.broken == 0 {
            actions(&self.config, s, out);
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut s = *before;
        let is_possible = self.step(&mut s, action);
        if !is_possible {
            return None;
        }
        reached(action.point());
        s.forget_what_is_past(self.config.clocks);
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Protocol {
    pub fn new(config: Config) -> Self {
        Self { config, calls: Calls::default() }
    }

    /// Does it; false if it cannot happen here.
    fn step(&self, s: &mut World, action: Action) -> bool {
        if action.is_fault(&self.config, s) {
            s.faults -= 1;
        }
        match action {
            Action::Tick => self.tick(s),
            Action::Receive { worker, message } => self.receive(s, worker, message),
            Action::Store { worker, wire } => {
                let mut work = Work::of(self, s, worker);
                if !work.store(wire) {
                    return false;
                }
                work.put();
            }
            Action::Effect { worker, reply } => {
                let mut work = Work::of(self, s, worker);
                if let At::Send(send) = work.a.at {
                    work.effect(send, reply);
                }
                work.put();
            }
            Action::Ask { worker, reply } => {
                let mut work = Work::of(self, s, worker);
                if let At::Ask { send, first_sent, why } = work.a.at {
                    work.ask((send, first_sent, why), reply);
                }
                work.put();
            }
            Action::GoOn { worker } => {
                let mut work = Work::of(self, s, worker);
                work.next_effect();
                work.put();
            }
            Action::Return { worker, came } => {
                let mut work = Work::of(self, s, worker);
                work.ends(came);
                work.put();
            }
            Action::Stop { worker, midway } => {
                let mut work = Work::of(self, s, worker);
                if !self.leave(&mut work, midway) {
                    return false;
                }
                work.ends(Came::Cancelled);
                work.put();
            }
            Action::NoTime { worker } => {
                let mut work = Work::of(self, s, worker);
                work.gives_up();
                work.put();
            }
            Action::Quarantine { worker, wire } => {
                let mut work = Work::of(self, s, worker);
                if let At::Quarantine { mark } = work.a.at {
                    work.quarantine(mark, wire);
                }
                work.put();
            }
            Action::Tell { worker, is_heard } => {
                let work = Work::of(self, s, worker);
                if let At::Tell(answer) = work.a.at {
                    work.tell(answer, is_heard);
                }
            }
            Action::Crash { worker, midway } => {
                let mut work = Work::of(self, s, worker);
                if !self.leave(&mut work, midway) {
                    return false;
                }
                s.workers[usize::from(worker)] = None;
            }
            Action::LateWrite => {
                if let Some(late) = s.late_write.take() {
                    self.land(s, late);
                }
            }
            Action::LateEffect => {
                if let Some(late) = s.late_effect.take() {
                    self.arrives(s, late.request, false);
                }
            }
            Action::Redeliver { message } => {
                s.messages[usize::from(message)].place = Place::Queued(0);
            }
            Action::Redrive { message } => {
                let now = s.now;
                let moved = &mut s.messages[usize::from(message)];
                (moved.place, moved.sent, moved.receives) = (Place::Queued(0), now, 0);
                (moved.is_dead, moved.redriven) = (false, moved.redriven + 1);
                s.redrives -= 1;
            }
            Action::Delete { key } => self.delete(s, usize::from(key)),
        }
        true
    }

    /// What becomes of the call of a worker that dies or is stopped in the middle of it.
    fn leave(&self, work: &mut Work<'_>, midway: Midway) -> bool {
        if midway == Midway::Before {
            return true;
        }
        if let At::Send(send) = work.a.at {
            let request = work.request(send);
            let reply = if midway == Midway::Late { Reply::Late } else { Reply::AnswerLost };
            work.check(request);
            self.provide(work.s, request, reply);
            return true;
        }
        let wire = if midway == Midway::Late { Wire::Late } else { Wire::ReplyLost };
        work.leave(wire)
    }

    fn receive(&self, s: &mut World, worker: u8, message: u8) {
        let most = self.config.receives;
        let taken = &mut s.messages[usize::from(message)];
        if most > 0 && taken.receives >= most {
            reached(Point::QueueRedrive);
            (taken.place, taken.is_dead) = (Place::Gone, true);
            return;
        }
        Work::receive(self, s, worker, message);
    }

    fn tick(&self, s: &mut World) {
        s.now += 1;
        for message in &mut s.messages {
            if let Place::Queued(hidden) = &mut message.place {
                *hidden = hidden.saturating_sub(1);
            }
        }
        self.send_due(s);
        if s.late_effect.is_some_and(|late| late.by < s.now) {
            s.late_effect = None;
        }
        // A request is not under way for ever.
        if s.now >= self.config.horizon {
            s.late_write = None;
        }
    }

    fn send_due(&self, s: &mut World) {
        for (message, (.., sent)) in s.messages.iter_mut().zip(self.config.messages) {
            if message.place == Place::NotSent && *sent <= s.now {
                (message.place, message.sent) = (Place::Queued(0), *sent);
            }
        }
    }
}
