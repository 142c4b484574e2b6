//! What is outside: a provider of keys remembers them and answers as the first time; any other does
//! what it is asked as often as it is asked.

use crate::actions::Reply;
use crate::config::DELAY;
use crate::model::Protocol;
use crate::properties::Broken;
use crate::world::{Known, LateEffect, Request, World};

/// What a worker hears of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    Done,
    Declined,
    /// The key is known with another request.
    OtherRequest,
    NotSent,
    TurnedAway,
    Unclear,
    Nothing,
}

impl Protocol {
    pub fn provide(&self, s: &mut World, request: Request, reply: Reply) -> Answered {
        match reply {
            Reply::Ok => self.arrives(s, request, false),
            Reply::Declined => self.arrives(s, request, true),
            Reply::RequestLost => Answered::Nothing,
            Reply::AnswerLost => {
                self.arrives(s, request, false);
                Answered::Nothing
            }
            Reply::Late => {
                s.late_effect = Some(LateEffect { request, by: s.now + DELAY });
                Answered::Nothing
            }
            Reply::NotSent => Answered::NotSent,
            Reply::TurnedAway => Answered::TurnedAway,
            Reply::Unclear => {
                self.arrives(s, request, false);
                Answered::Unclear
            }
        }
    }

    /// A request arrives; if the provider has a choice, it `declines`.
    pub fn arrives(&self, s: &mut World, request: Request, declines: bool) -> Answered {
        let kind = self.config.effects[usize::from(request.effect)];
        let account = &mut s.accounts[usize::from(request.key)][usize::from(request.effect)];
        if !kind.is_keyed() {
            if declines {
                return Answered::Declined;
            }
            account.runs = account.runs.saturating_add(1);
            return Answered::Done;
        }
        let known = &mut account.keys[usize::from(request.generation)];
        if let (Known::Done { at, .. }, Some(kept)) = (*known, kind.remembered())
            && s.now > at + kept
        {
            *known = Known::Nothing;
        }
        match *known {
            Known::Nothing if declines => {
                *known = Known::Declined;
                Answered::Declined
            }
            Known::Nothing => {
                account.runs = account.runs.saturating_add(1);
                // The instant tells worlds apart only where it is ever looked at.
                let at = if kind.remembered().is_some() { s.now } else { 0 };
                *known = Known::Done { at, body: request.body };
                Answered::Done
            }
            Known::Declined => Answered::Declined,
            Known::Done { body, .. } if body != request.body => {
                if !self.config.varies {
                    s.breaks(Broken::OtherBytes);
                }
                Answered::OtherRequest
            }
            Known::Done { .. } => Answered::Done,
        }
    }

    /// A new generation is for what was refused for certain: under no earlier key anything was done
    /// or can still be.
    pub fn check_sending(&self, s: &mut World, request: Request) {
        if !self.config.effects[usize::from(request.effect)].is_keyed() {
            return;
        }
        let account = s.accounts[usize::from(request.key)][usize::from(request.effect)];
        let earlier = &account.keys[..usize::from(request.generation)];
        let is_under_way = s.late_effect.is_some_and(|late| {
            (late.request.key, late.request.effect) == (request.key, request.effect)
                && late.request.generation < request.generation
                && account.keys[usize::from(late.request.generation)] == Known::Nothing
        });
        if is_under_way || earlier.iter().any(|known| matches!(known, Known::Done { .. })) {
            s.breaks(Broken::NewKey);
        }
    }
}
