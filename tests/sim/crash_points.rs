//! Every class of effect, killed at every call and at every pair of calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce::effect::Probe;
use onlyonce::protocol::Status;
use onlyonce::store::{RowValue, RowWrite};
use onlyonce::test_util::{CrashPoints, CrashReport, Fate, Kind, Story};
use onlyonce::{Context, EffectKey, HandlerError, Job, RetryPolicy};
use serde_json::json;

/// A provider that remembers keys, as the good ones do.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    /// By key: what was made of it.
    done: HashMap<String, usize>,
    /// How often each operation was really done.
    operations: BTreeMap<&'static str, usize>,
    requests: usize,
    /// Declines the first key it sees, and every time.
    declines: Option<Option<String>>,
}

impl Provider {
    fn declining() -> Self {
        let provider = Self::default();
        provider.0.lock().unwrap().declines = Some(None);
        provider
    }

    fn keyed(&self, operation: &'static str, key: &EffectKey) -> Result<usize, HandlerError> {
        let mut it = self.0.lock().unwrap();
        it.requests += 1;
        let key = key.as_str().to_owned();
        if let Some(declined) = &mut it.declines
            && *declined.get_or_insert_with(|| key.clone()) == key
        {
            return Err(HandlerError::rejected("declined"));
        }
        let next = it.requests;
        if let Some(result) = it.done.get(&key) {
            return Ok(*result);
        }
        it.done.insert(key, next);
        *it.operations.entry(operation).or_default() += 1;
        Ok(next)
    }

    fn plain(&self, operation: &'static str) -> Result<usize, HandlerError> {
        let mut it = self.0.lock().unwrap();
        it.requests += 1;
        *it.operations.entry(operation).or_default() += 1;
        Ok(it.requests)
    }

    fn probe(&self, key: &EffectKey) -> Result<Probe<usize>, HandlerError> {
        let it = self.0.lock().unwrap();
        Ok(it.done.get(key.as_str()).map_or(Probe::NotDone, |result| Probe::Done(*result)))
    }

    fn times(&self, operation: &str) -> usize {
        self.0.lock().unwrap().operations.get(operation).copied().unwrap_or_default()
    }
}

fn is_completed(story: &Story) -> bool {
    story.record.as_ref().is_some_and(|record| record.status == Status::Completed)
}

/// Done exactly once if completed, and never twice.
fn once(provider: &Provider, story: &Story, operation: &str) -> Result<(), String> {
    match provider.times(operation) {
        1 => Ok(()),
        0 if !is_completed(story) => Ok(()),
        times => Err(format!("{operation} was done {times} times at its provider")),
    }
}

fn row() -> RowWrite {
    RowWrite::Add {
        table: "stock".to_owned(),
        key: [("sku".to_owned(), RowValue::from("cup"))].into(),
        add: [("taken".to_owned(), 1)].into(),
        floor: BTreeMap::new(),
    }
}

fn retry() -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_secs(3), 6)
}

/// Shows what was tried, and fails if anything was left out or broken.
fn shown(class: &str, report: &CrashReport, kinds: &[Kind]) {
    let (calls, cases) = (report.calls.len(), report.cases());
    println!("{class}: {calls} calls without a fault, {cases} cases\n{report}\n");
    assert!(report.holds(), "{class}: {report}");
    assert_eq!(report.singles, calls * 4, "each call, each way");
    for kind in kinds {
        assert!(report.kinds().contains(kind), "{class}: no {kind} was ever seen");
    }
}

/// Runs a job of this one handler, with a fresh provider each time.
macro_rules! crash {
    ($provider:expr, |$p:ident, $cx:ident| $handler:expr, $look:expr) => {
        CrashPoints::default().check(
            || {
                let provider: Provider = $provider;
                let made = provider.clone();
                let job = Job::new("job", move |_: serde_json::Value, $cx: Context| {
                    let $p = provider.clone();
                    async move { $handler }
                })
                .retry(retry());
                (job, made)
            },
            json!({"order": 1}),
            $look,
        )
    };
}

#[test]
fn transactional_with_an_effect() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            cx.stage(row()).await?;
            cx.effect("mail").at_least_once(async || p.plain("mail")).await
        },
        |p: Provider, story: &Story| match (is_completed(story), p.times("mail")) {
            (true, 0) => Err("completed without a mail".to_owned()),
            _ => Ok(()),
        }
    );
    assert_eq!(report.staged.1, 1);
    shown("transactional", &report, &[Kind::TakeOver, Kind::Delay, Kind::Release]);
}

#[test]
fn fused() {
    let report = CrashPoints::default().check(
        || {
            let job =
                Job::new("job", async |_: serde_json::Value, cx: Context| cx.stage(row()).await);
            (job.retry(retry()).fused(), ())
        },
        json!({"order": 1}),
        |(), _| Ok(()),
    );
    assert_eq!(report.staged, (1, 1), "retried until it lands");
    assert_eq!(report.ended.completed, report.cases() + 1);
    shown("fused", &report, &[Kind::Fused]);
}

#[test]
fn keyed() {
    let report = crash!(
        Provider::default(),
        |p, cx| cx.effect("charge").request(&1200).keyed(async |key| p.keyed("charge", &key)).await,
        |p: Provider, story: &Story| once(&p, story, "charge")
    );
    assert_eq!(report.effects["charge"].keys, 1);
    assert_eq!(report.ended.completed, report.cases() + 1);
    shown("keyed", &report, &[Kind::TakeOver]);
}

#[test]
fn keyed_several() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            let charge = cx.effect("charge").keyed(async |key| p.keyed("charge", &key)).await?;
            let invoice = cx.effect("invoice").request(&charge);
            invoice.keyed(async |key| p.keyed("invoice", &key)).await?;
            cx.effect("ship").keyed(async |key| p.keyed("ship", &key)).await
        },
        |p: Provider, story: &Story| {
            ["charge", "invoice", "ship"].iter().try_for_each(|it| once(&p, story, it))
        }
    );
    shown("keyed, three effects", &report, &[Kind::KeepEffects, Kind::TakeOver]);
}

#[test]
fn keyed_with_a_decline() {
    let report = crash!(
        Provider::declining(),
        |p, cx| cx.effect("charge").keyed(async |key| p.keyed("charge", &key)).await,
        |p: Provider, story: &Story| once(&p, story, "charge")
    );
    assert_eq!(report.effects["charge"].keys, 2, "redriven after the decline, under a new key");
    shown("keyed, declined first", &report, &[Kind::Fail, Kind::Quarantine, Kind::Mark]);
}

#[test]
fn keyed_or_ask() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            let effect = cx.effect("charge").window(Duration::from_secs(20));
            let effect = effect.settles_within(Duration::from_secs(30));
            effect
                .keyed_or_ask(async |key| p.probe(&key), async |key| p.keyed("charge", &key))
                .await
        },
        |p: Provider, story: &Story| once(&p, story, "charge")
    );
    shown("keyed, or asked past its window", &report, &[Kind::Probe]);
}

#[test]
fn reconcile() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            let effect = cx.effect("charge").settles_within(Duration::from_secs(30));
            effect.reconcile(async |key| p.probe(&key), async |key| p.keyed("charge", &key)).await
        },
        |p: Provider, story: &Story| once(&p, story, "charge")
    );
    assert_eq!(report.effects["charge"].done.1, 1);
    shown("reconcile", &report, &[Kind::KeepEffects, Kind::Probe]);
}

#[test]
fn at_least_once() {
    let report = crash!(
        Provider::default(),
        |p, cx| cx.effect("mail").at_least_once(async || p.plain("mail")).await,
        |p: Provider, story: &Story| match (is_completed(story), p.times("mail")) {
            (true, 0) => Err("completed without a mail".to_owned()),
            _ => Ok(()),
        }
    );
    assert!(report.effects["mail"].done.1 > 1, "a rare duplicate is what it allows");
    shown("at least once", &report, &[Kind::TakeOver]);
}

#[test]
fn at_most_once() {
    let report = crash!(
        Provider::default(),
        |p, cx| cx.effect("letter").at_most_once(async || p.plain("letter")).await,
        |p: Provider, story: &Story| once(&p, story, "letter")
    );
    assert!(report.ended.unknown > 0, "a crash in the middle is parked");
    shown("at most once", &report, &[Kind::KeepEffects, Kind::Park, Kind::Quarantine, Kind::Mark]);
}

#[test]
fn mixed() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            cx.stage(row()).await?;
            let charge = cx.effect("charge").keyed(async |key| p.keyed("charge", &key)).await?;
            let book = cx.effect("book").settles_within(Duration::from_secs(30));
            book.reconcile(async |key| p.probe(&key), async |key| p.keyed("book", &key)).await?;
            cx.effect("mail").at_least_once(async || p.plain("mail")).await?;
            cx.effect("letter").at_most_once(async || p.plain("letter")).await?;
            Ok::<_, HandlerError>(charge)
        },
        |p: Provider, story: &Story| {
            ["charge", "book", "letter"].iter().try_for_each(|it| once(&p, story, it))
        }
    );
    let kinds = [Kind::TakeOver, Kind::KeepEffects, Kind::Probe, Kind::Park, Kind::Complete];
    shown("mixed", &report, &kinds);
}

#[test]
fn a_job_whose_budget_is_spent_is_parked_whatever_crashes() {
    let report = CrashPoints::default().check(
        || {
            let job = Job::new("job", async |_: serde_json::Value, cx: Context| {
                cx.effect("mail").at_least_once(async || Ok::<_, HandlerError>(1)).await
            });
            (job.retry(RetryPolicy::none()), ())
        },
        json!(null),
        |(), _| Ok(()),
    );
    shown("one attempt", &report, &[Kind::Spend, Kind::Quarantine, Kind::Mark]);
}

/// The kit must see: a job that breaks its word is told so, with the crash that shows it.
#[test]
fn a_broken_promise_is_named() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            // A key that changes with the attempt is no key.
            let name = format!("charge-{}", cx.attempt());
            cx.effect(name).keyed(async |key| p.keyed("charge", &key)).await
        },
        |p: Provider, story: &Story| once(&p, story, "charge")
    );
    assert!(!report.holds());
    let told = report.to_string();
    assert!(told.contains("charge was done 2 times at its provider"), "{told}");
    assert!(told.contains("died after \"request of charge-1\" (call 2)"), "{told}");
}

#[test]
fn a_provider_that_forgets_breaks_a_reconciled_effect() {
    let report = crash!(
        Provider::default(),
        |p, cx| {
            let effect = cx.effect("charge").settles_within(Duration::ZERO);
            let forgets = async |_| Ok::<_, HandlerError>(Probe::NotDone);
            effect.reconcile(forgets, async |_| p.plain("charge")).await
        },
        |_: Provider, _: &Story| Ok(())
    );
    let told = report.to_string();
    assert!(told.contains("effect \"charge\" was sent again though it was done"), "{told}");
}

#[test]
fn fewer_fates_make_fewer_cases() {
    let points = CrashPoints { fates: vec![Fate::DiesAfter], pairs: false };
    let job = || {
        let job = Job::new("job", async |_: u8, _: Context| Ok::<_, HandlerError>(()));
        (job, ())
    };
    let report = points.check(job, 1, |(), _| Ok(()));
    assert_eq!((report.singles, report.pairs), (report.calls.len(), 0));
}
