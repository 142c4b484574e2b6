//! One seed, from the first message to the last check.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use onlyonce::Context;
use onlyonce::front::Message;
use onlyonce::local::{Invocation, LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::{ClaimId, RecordId, Status, Timestamp};
use onlyonce::runtime::{Clock, Entropy};
use onlyonce::test_util::{GroupedStore, Kind, VirtualClock, Witness, World, operation as id};
use serde_json::{Value, json};

use super::faults::{Faults, Named, Totals, mixed};
use super::gate::SeededGate;
use super::jobs::{effects, router, staged};
use super::plan::Plan;
use super::provider::{LAG, Provider};

const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
/// How often an operator sends dead letters through again, at most.
const REDRIVES: usize = 24;
const MOST_INVOCATIONS: u64 = 1_000;

const DELIVERIES: u64 = 7;

/// What one seed came to.
pub struct Ran {
    pub broken: Vec<String>,
    pub totals: Totals,
    /// A digest of everything that happened, in order.
    pub trace: u64,
    pub calls: usize,
    pub deliveries: u64,
    /// How often a claim's renewal was sent.
    pub renewals: usize,
    /// The same for people.
    pub story: Vec<String>,
}

/// Random, and the same for the same seed.
struct Drawn(Mutex<(fastrand::Rng, u64)>);

impl Entropy for Drawn {
    fn claim_id(&self) -> ClaimId {
        let mut drawn = self.0.lock().unwrap();
        drawn.1 += 1;
        ClaimId::new(format!("claim-{}", drawn.1))
    }

    fn jitter(&self) -> f64 {
        self.0.lock().unwrap().0.f64()
    }
}

/// What was sent first, in the order of its group.
#[derive(Default)]
struct Order(Mutex<Vec<(String, u64, RecordId)>>);

/// Runs a plan. With `is_told` the story is written down.
pub fn run(plan: &Plan, is_told: bool) -> Ran {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(simulated(plan, is_told))
}

async fn simulated(plan: &Plan, is_told: bool) -> Ran {
    let clock = VirtualClock::new(START);
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let faults = Arc::new(Faults::new(plan.seed, plan.enabled, plan.chance, plan.most_faults));
    let provider = Provider::new(faults.clone(), clock.clone());
    let order: Arc<Order> = Arc::default();
    let seen: Arc<std::sync::OnceLock<(Weak<Witness>, LocalQueue)>> = Arc::default();
    let began: Arc<dyn Fn(&Context) + Send + Sync> = {
        let (order, seen) = (order.clone(), seen.clone());
        let is_fifo = plan.is_fifo;
        Arc::new(move |cx| {
            let Some((witness, queue)) = seen.get() else { return };
            if is_fifo && let Some(witness) = witness.upgrade() {
                in_order(&order, &witness, queue, cx);
            }
        })
    };
    let settings = QueueSettings {
        name: if plan.is_fifo { "sim.fifo" } else { "sim" }.to_owned(),
        visibility: Duration::from_millis(plan.visibility),
        max_receives: plan.max_receives,
    };
    let queue = LocalQueue::new(settings, shared.clone());
    let entropy = Arc::new(Drawn(Mutex::new((fastrand::Rng::with_seed(mixed(plan.seed, 9)), 0))));
    let gate = Arc::new(SeededGate(faults.clone()));
    let world = World::new(router(plan, &provider, &began), queue, shared.clone(), entropy, gate);
    let world = match plan.is_grouped {
        true => {
            let inner = world.store.clone();
            world.over(Arc::new(GroupedStore::new(inner, 1 + (plan.seed % 3) as usize)))
        }
        false => world,
    };
    let world = match plan.lease {
        Some(lease) => world.renewing(Duration::from_millis(lease)),
        None => world,
    };
    let _ = seen.set((Arc::downgrade(&world.witness), world.queue.clone()));
    let hosts: Vec<Arc<dyn Clock>> = plan
        .ahead
        .iter()
        .map(|ahead| -> Arc<dyn Clock> {
            Arc::new(VirtualClock::new(START + Duration::from_millis(*ahead)))
        })
        .collect();
    let poller = Poller {
        batch: plan.batch,
        concurrency: plan.concurrency,
        timeout: Duration::from_millis(plan.timeout),
    };
    let count = Mutex::new(0);
    let invoke = async |invocation: &Invocation| {
        let number = {
            let mut count = count.lock().unwrap();
            *count += 1;
            *count
        };
        // Everything ends long before; what does not would go on for ever.
        if number > MOST_INVOCATIONS {
            world.witness.broke(7, "messages come again and again");
            return Some(Value::Null);
        }
        let mut random = faults.random(DELIVERIES, number);
        if faults.hits(Named::Throttled, 1.0, &mut random) {
            return None;
        }
        if faults.hits(Named::Duplicated, 4.0, &mut random) {
            let messages = invocation.messages();
            let again = &messages[random.usize(..messages.len())];
            let wait = Duration::from_millis(random.u64(..20_000));
            world.queue.change_visibility(again.receipt.as_deref().unwrap(), wait);
        }
        let host = hosts[random.usize(..hosts.len())].clone();
        let told = world.invoke(host, invocation).await;
        if told.is_some() && faults.hits(Named::AnswerGarbled, 1.0, &mut random) {
            return Some(Value::from("garbled"));
        }
        told
    };

    let mut messages = plan.messages.iter().peekable();
    loop {
        let elapsed = clock.now().since(START);
        while let Some(sent) = messages.next_if(|it| Duration::from_millis(it.at) <= elapsed) {
            let n = sent.key * 2 + u64::from(sent.is_other) + 1;
            let body = json!({ "n": n, "mood": sent.mood, "work": sent.work });
            let mut message =
                Message::new(sent.job, &format!("key-{}", sent.key), body.to_string());
            message.group = plan.is_fifo.then(|| sent.group.to_string());
            let of = id(&message).unwrap();
            let name = world.queue.send_message(message);
            order.0.lock().unwrap().push((name, sent.group, of));
        }
        poller.run(&world.queue, invoke).await;
        let Some(next) = messages.peek() else { break };
        clock.sleep_until(START + Duration::from_millis(next.at)).await;
    }
    // From here on the order is the operator's.
    order.0.lock().unwrap().clear();
    let ids: BTreeSet<(RecordId, &str)> = plan
        .messages
        .iter()
        .map(|sent| {
            let message = Message::new(sent.job, &format!("key-{}", sent.key), "");
            (id(&message).unwrap(), sent.job)
        })
        .collect();
    for redrive in 0..REDRIVES {
        if redrive > 0 {
            faults.stop();
        }
        let is_stuck = ids.iter().any(|(id, _)| !world.witness.is_settled(id));
        if world.queue.dead().is_empty() || (redrive > 1 && !is_stuck) {
            break;
        }
        // An operator may be quick; the last ones come clearly after every failure and lease.
        let wait = if redrive == 0 { plan.redriven_after } else { 60_000 };
        clock.sleep_until(clock.now() + Duration::from_millis(wait)).await;
        world.queue.redrive();
        poller.run(&world.queue, invoke).await;
    }
    // What is still under way arrives.
    clock.sleep_until(clock.now() + LAG + SECOND).await;

    world.witness.rest();
    if !world.queue.is_empty() {
        world.witness.broke(5, "messages are left in the queue");
    }
    judge(&world, &ids, &provider);
    let mut ran = told(&world, &provider, &faults, is_told);
    if plan.is_beyond_the_margin() {
        ran.broken.retain(|broken| !rests_on_clocks(broken));
    }
    ran
}

/// A handler has begun: of its group, all that was sent before must have come to an end.
fn in_order(order: &Order, witness: &Witness, queue: &LocalQueue, cx: &Context) {
    let order = order.0.lock().unwrap();
    let Some(at) = order.iter().position(|(name, ..)| Some(name.as_str()) == cx.message_id())
    else {
        return;
    };
    let (_, group, _) = &order[at];
    let waits = |(_, other, id): &&(String, u64, RecordId)| {
        other == group && id != cx.id() && !witness.is_settled(id)
    };
    if order[..at].iter().all(|it| !waits(&it)) {
        return;
    }
    // Received too often, or put in quarantine, it waits for an operator, and for nobody else.
    let dead = queue.dead();
    let is_dead = |(name, _, of): &&(String, u64, RecordId)| {
        dead.iter().any(|it| it.id == *name || id(it).as_ref() == Some(of))
    };
    if let Some((name, ..)) = order[..at].iter().filter(waits).find(|it| !is_dead(it)) {
        witness.broke(5, format!("a message overtook {name} of its group"));
    }
}

/// What is not promised where clocks differ by more than the margin: that one handler runs at a
/// time, and what is decided by the time, which is asking, windows, and whether a copy of a failed
/// message was sent before or after it failed.
fn rests_on_clocks(broken: &str) -> bool {
    [
        "its record is failed",
        "invariant 10,",
        ": book was",
        "effect \"book\"",
        "windowed: charge",
        "asked: charge",
    ]
    .iter()
    .any(|it| broken.contains(it))
}

/// What the providers saw must fit what the records say.
fn judge(world: &World, ids: &BTreeSet<(RecordId, &str)>, provider: &Provider) {
    let done = provider.done();
    for (id, job) in ids {
        let story = world.witness.story(id);
        let is_completed =
            story.record.as_ref().is_some_and(|record| record.status == Status::Completed);
        let expected = if is_completed { staged(job) } else { 0 };
        if story.staged != expected {
            let what = format!("{job}: what was staged was committed {} times", story.staged);
            world.witness.broke(1, what);
        }
        for effect in effects(job) {
            let times = done.iter().find(|((of, name), _)| of == id.as_str() && name == effect);
            let times = times.map_or(0, |(_, times)| *times);
            let invariant = match *effect {
                "letter" => 3,
                "mail" => 4,
                _ => 2,
            };
            let is_too_often = times > 1 && *effect != "mail";
            if is_too_often || (is_completed && times == 0) {
                let status = story.record.as_ref().map_or("missing", |it| it.status.as_str());
                let what =
                    format!("{job}: {effect} was really done {times} times, and is {status}");
                world.witness.broke(invariant, what);
            }
        }
    }
}

fn told(world: &World, provider: &Provider, faults: &Faults, is_told: bool) -> Ran {
    let crossings = world.witness.crossings();
    let mut trace = DefaultHasher::new();
    for (crossing, fate) in &crossings {
        let id = crossing.id.as_ref().map(RecordId::as_str);
        (crossing.number, crossing.invocation, crossing.at, crossing.kind).hash(&mut trace);
        (crossing.effect.as_deref(), id, fate).hash(&mut trace);
    }
    provider.done().hash(&mut trace);
    faults.totals().0.hash(&mut trace);
    let line = |(crossing, fate): &(onlyonce::test_util::Crossing, _)| {
        let id = crossing.id.as_ref().map_or("", |id| &id.as_str()[..6]);
        format!(
            "{:>9} ms  invocation {:<3} {id:6}  {crossing}: {fate:?}",
            crossing.at.since(START).as_millis(),
            crossing.invocation
        )
    };
    let mut story: Vec<String> =
        if is_told { crossings.iter().map(line).collect() } else { Vec::new() };
    if is_told {
        story.extend(provider.done().iter().map(|it| format!("really done: {it:?}")));
    }
    let broken = world.witness.broken();
    let broken = broken.iter().map(|it| format!("invariant {}, {it}", it.invariant)).collect();
    Ran {
        broken,
        totals: faults.totals(),
        trace: trace.finish(),
        calls: crossings.len(),
        deliveries: world.queue.deliveries(),
        renewals: crossings.iter().filter(|(it, _)| it.kind == Kind::Renew).count(),
        story,
    }
}
