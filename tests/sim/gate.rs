//! What becomes of each call, by the seed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onlyonce::test_util::{Crossing, Fate, Gate, Kind};

use super::faults::{Faults, Named};

pub struct SeededGate(pub Arc<Faults>);

const CALLS: u64 = 1;
const BACK: u64 = 2;
const DOOMS: u64 = 3;

impl SeededGate {
    async fn travel(&self, random: &mut fastrand::Rng) {
        let slow = self.0.hits(Named::Slow, 0.5, random);
        let ms = if slow { random.u64(500..12_000) } else { random.u64(0..30) };
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
}

#[async_trait]
impl Gate for SeededGate {
    async fn fate(&self, crossing: &Crossing) -> Fate {
        let mut random = self.0.random(CALLS, crossing.number as u64);
        self.travel(&mut random).await;
        let later = Fate::LandsLater(Duration::from_millis(1 << random.u32(3..16)));
        let store = [
            (Named::StoreLate, later),
            (Named::DiedBefore, Fate::DiesBefore),
            (Named::DiedAfter, Fate::DiesAfter),
            (Named::StoreLostRequest, Fate::LosesRequest),
            (Named::StoreLostReply, Fate::LosesReply),
            (Named::StoreHung, Fate::Hangs),
            (Named::StoreHungAfter, Fate::HangsAfter),
            (Named::StoreContended, Fate::Contends),
            (Named::StoreRefused, Fate::Refused),
        ];
        let queue = [
            (Named::DiedBefore, Fate::DiesBefore),
            (Named::DiedAfter, Fate::DiesAfter),
            (Named::QueueLost, Fate::LosesRequest),
            (Named::QueueReplyLost, Fate::LosesReply),
        ];
        // What else may happen to a request, its provider decides.
        let faults = match crossing.kind {
            Kind::Send | Kind::Probe => &queue[..2],
            Kind::Quarantine | Kind::Delay => &queue[..],
            Kind::Answer => &[(Named::AnswerLost, Fate::LosesRequest)],
            _ => &store[..],
        };
        let hit = faults.iter().find(|(named, _)| self.0.hits(*named, 1.0, &mut random));
        hit.map_or(Fate::Passes, |(_, fate)| *fate)
    }

    async fn back(&self, crossing: &Crossing) {
        self.travel(&mut self.0.random(BACK, crossing.number as u64)).await;
    }

    async fn doom(&self, invocation: usize) {
        let mut random = self.0.random(DOOMS, invocation as u64);
        if !self.0.hits(Named::DiedBetween, 2.0, &mut random) {
            return std::future::pending().await;
        }
        // Early more often than late.
        let most = 1 << random.u32(4..15);
        tokio::time::sleep(Duration::from_millis(random.u64(..most))).await;
    }
}
