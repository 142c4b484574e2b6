//! What a handler does with its effects, as `Context` and the effects of each class do.

use onlyonce::protocol::{Fingerprint, Held, Said as Tells};

use crate::actions::{Reply, Said};
use crate::attempt::{At, Came, Send, Why};
use crate::calls::{Begun, name};
use crate::config::{Kind, SETTLES, fault};
use crate::interned::Ref;
use crate::properties::Broken;
use crate::provider::Answered;
use crate::worker::Work;
use crate::world::Request;

impl Work<'_> {
    /// The handler is called.
    pub fn begin(&mut self, held: Ref<Held>) {
        self.a.held = Some(held);
        self.s.runs_with(self.key(), self.payload());
        let skips = self.model.config.may & fault::SKIP != 0;
        if skips { self.a.at = At::Go } else { self.next_effect() }
    }

    /// The handler goes on to its next effect, past those that are done.
    pub fn next_effect(&mut self) {
        let model = self.model;
        while let Some(kind) = model.config.effects.get(usize::from(self.a.effect)) {
            let effect = self.a.effect;
            let body = kind.is_keyed().then(|| self.body());
            let held = self.held();
            let (begun, held, is_noted) =
                model.calls.begin(&model.config, held, effect, body, self.now);
            self.a.held = Some(held);
            let owes = self.a.has_unwritten;
            self.a.has_unwritten |= is_noted;
            match begun {
                Begun::Done => self.a.effect += 1,
                Begun::Run(send) => return self.start(send, owes || !self.is_silent(*kind)),
                Begun::Open { send, first_sent, why } => {
                    return match (kind, why) {
                        (Kind::Reconcile | Kind::KeyedOrAsk { .. }, _) => {
                            self.a.at = At::Ask { send, first_sent, why };
                        }
                        (_, Why::ResultLost) => self.ends(Came::Terminal),
                        _ => self.ends(Came::Unknown),
                    };
                }
            }
        }
        self.a.at = At::Return;
        let fails = fault::RETRYABLE | fault::TERMINAL;
        if model.config.may & fails == 0 {
            self.ends(Came::Ok);
        }
    }

    /// Whether nothing needs to be written before such an effect.
    fn is_silent(&self, kind: Kind) -> bool {
        !matches!(kind, Kind::AtMostOnce | Kind::Reconcile)
    }

    /// What is sent: of the payload alone, unless the handler breaks that rule.
    fn body(&self) -> u8 {
        let attempt = u8::try_from(self.held().get().attempt).expect("few");
        if self.model.config.varies { 100 + attempt } else { self.payload() }
    }

    fn start(&mut self, send: Send, is_owed: bool) {
        self.a.at = At::Send(send);
        if is_owed {
            self.a.in_doubt = Some(self.model.calls.keep_effects(self.held(), self.now));
            self.a.has_unwritten = false;
            self.a.tries = 0;
            self.a.at = At::Flush { send };
        }
    }

    pub fn request(&self, send: Send) -> Request {
        let key = u8::try_from(self.key()).expect("few");
        let generation = send.generation;
        Request { key, effect: self.a.effect, generation, body: self.body() }
    }

    /// What must hold as a request goes out. That its bytes are another's is for the provider to see,
    /// unless the record shows it: then they stay here.
    pub fn check(&mut self, request: Request) {
        self.model.check_sending(self.s, request);
        let held = self.held().get();
        if self.model.config.varies
            && let Some(sent) = held.effects.get(name(request.effect))
            && sent.request.as_ref().is_some_and(|sent| *sent != Fingerprint::of(&[request.body]))
        {
            self.s.breaks(Broken::OtherBytes);
        }
    }

    /// The effect is sent, and its answer heard.
    pub fn effect(&mut self, send: Send, reply: Reply) {
        let request = self.request(send);
        let calls = &self.model.calls;
        self.check(request);
        let said = self.model.provide(self.s, request, reply);
        let kind = self.model.config.effects[usize::from(self.a.effect)];
        let held = self.held();
        let (came, tells) = match said {
            Answered::Done => {
                self.a.held = Some(calls.done(&self.model.config, held, self.a.effect, self.now));
                self.a.has_unwritten = true;
                self.a.effect += 1;
                return self.next_effect();
            }
            Answered::Declined => (Came::Terminal, Tells::Rejected),
            Answered::NotSent => (Came::Retryable, Tells::NotSent),
            Answered::TurnedAway => (Came::Terminal, Tells::NotSent),
            Answered::OtherRequest => (Came::Terminal, Tells::Mismatch),
            Answered::Unclear => (Came::Terminal, Tells::Nothing),
            Answered::Nothing => (Came::Retryable, Tells::Nothing),
        };
        if kind != Kind::AtLeastOnce {
            let ended = (came == Came::Terminal, send.was_sent);
            self.a.held = Some(calls.after_error(held, self.a.effect, tells, ended));
            self.a.has_unwritten = true;
        }
        let came = match kind {
            Kind::AtMostOnce if tells == Tells::Nothing => Came::Unknown,
            _ if tells == Tells::Mismatch && send.was_sent => Came::Unknown,
            _ => came,
        };
        self.ends(came);
    }

    /// The provider is asked what became of a request.
    pub fn ask(&mut self, (send, first_sent, why): (Send, i16, Why), said: Said) {
        let model = self.model;
        let kind = model.config.effects[usize::from(self.a.effect)];
        let account = self.s.accounts[self.key()][usize::from(self.a.effect)];
        match said {
            Said::NoAnswer => return self.ends(Came::Retryable),
            Said::Unknown => return self.ends(Came::Unknown),
            Said::Truth if account.runs > 0 => {
                let effect = self.a.effect;
                self.a.held =
                    Some(model.calls.done(&model.config, self.held(), effect, first_sent));
                self.a.has_unwritten = true;
                self.a.effect += 1;
                return self.next_effect();
            }
            Said::Truth => {}
        }
        let settled = first_sent + SETTLES;
        if self.now < settled {
            return self.ends(Came::RetryAfter(settled - self.now));
        }
        match (kind, why) {
            (Kind::Reconcile, Why::ResultLost) | (_, Why::OtherRequest) => self.ends(Came::Unknown),
            _ => {
                let held = self.held();
                self.a.held =
                    Some(model.calls.begin_again(&model.config, held, self.a.effect, self.now));
                let is_owed = self.a.has_unwritten || !self.is_silent(kind);
                self.a.has_unwritten = true;
                self.start(send, is_owed);
            }
        }
    }

    /// The handler has ended.
    pub fn ends(&mut self, came: Came) {
        self.a.came = came;
        self.a.tries = 0;
        if self.model.config.is_fused {
            return self.claim(None);
        }
        if self.a.in_doubt.is_some() { self.a.at = At::Certain } else { self.settle() }
    }
}
