//! The real front and service over each store, killed at every call that they make.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onlyonce::effect::Probe;
use onlyonce::protocol::Status;
use onlyonce::store::Store;
use onlyonce::test_util::{CrashPoints, CrashReport, Fate, Kind, Story};
use onlyonce::{Context, EffectKey, HandlerError, Job, RetryPolicy};

use crate::apart::Apart;
use crate::counted::{add, count};

/// How many cases a store is quick enough for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crashes {
    /// Each call, and each pair of calls.
    Pairs,
    /// Each call.
    #[cfg_attr(not(feature = "dynamodb"), allow(dead_code, reason = "only slow stores need it"))]
    Singles,
}

/// What one case has beside its job: a provider that remembers keys, and a name to count under.
#[derive(Clone, Default)]
pub struct Case {
    /// What was done, by effect and key; without a key each time is another.
    done: Arc<Mutex<Vec<String>>>,
    pub name: String,
}

impl Case {
    pub fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    pub fn keyed(&self, effect: &str, key: &EffectKey) -> Result<(), HandlerError> {
        let mut done = self.done.lock().unwrap();
        let it = format!("{effect} {key}");
        if !done.contains(&it) {
            done.push(it);
        }
        Ok(())
    }

    pub fn plain(&self, effect: &str) -> Result<(), HandlerError> {
        self.done.lock().unwrap().push(format!("{effect} "));
        Ok(())
    }

    fn ask(&self, effect: &str, key: &EffectKey) -> Result<Probe<()>, HandlerError> {
        let is_done = self.done.lock().unwrap().contains(&format!("{effect} {key}"));
        Ok(if is_done { Probe::Done(()) } else { Probe::NotDone })
    }

    pub fn times(&self, effect: &str) -> usize {
        let done = self.done.lock().unwrap();
        done.iter().filter(|it| it.starts_with(&format!("{effect} "))).count()
    }
}

/// Never done twice, and done if the job is completed.
fn once(effect: &str, times: usize, story: &Story) -> Result<(), String> {
    let is_completed = story.record.as_ref().is_some_and(|it| it.status == Status::Completed);
    match times {
        1 => Ok(()),
        0 if !is_completed => Ok(()),
        times => Err(format!("{effect} was done {times} times")),
    }
}

struct Check {
    store: Arc<Apart>,
    cases: AtomicUsize,
}

#[allow(clippy::disallowed_methods, reason = "how long it took is the machine's time")]
pub fn all_hold(on: &str, making: impl Future<Output = Arc<dyn Store>>, crashes: Crashes) {
    let check = Check { store: Arc::new(Apart::new(making)), cases: AtomicUsize::new(0) };
    let pairs = crashes == Crashes::Pairs;
    let begun = Instant::now();

    let fused = check.run(pairs, |case, store| {
        let job = Job::new("job", move |_: (), cx: Context| {
            let one_more = add(store.as_ref(), &case.name, 1);
            async move { cx.stage(one_more).await }
        });
        job.fused()
    });
    assert_eq!(fused.staged, (1, 1), "{fused}");

    let keyed = check.run(pairs, |case, _| {
        Job::new("job", move |_: (), cx: Context| {
            let case = case.clone();
            async move { cx.effect("charge").keyed(async |key| case.keyed("charge", &key)).await }
        })
    });
    assert_eq!(keyed.ended.completed, keyed.cases() + 1, "{keyed}");

    let letter = check.run(pairs, |case, _| {
        Job::new("job", move |_: (), cx: Context| {
            let case = case.clone();
            async move { cx.effect("letter").at_most_once(async || case.plain("letter")).await }
        })
    });
    assert!(letter.ended.unknown > 0, "a crash in the middle is parked: {letter}");

    let mixed = check.run(false, |case, store| {
        Job::new("job", move |_: (), cx: Context| {
            let (case, one_more) = (case.clone(), add(store.as_ref(), &case.name, 1));
            async move {
                cx.stage(one_more).await?;
                cx.effect("charge").keyed(async |key| case.keyed("charge", &key)).await?;
                let book = cx.effect("book").settles_within(Duration::from_secs(30));
                let probe = async |key: EffectKey| case.ask("book", &key);
                book.reconcile(probe, async |key| case.keyed("book", &key)).await?;
                cx.effect("mail").at_least_once(async || Ok::<_, HandlerError>(())).await?;
                cx.effect("letter").at_most_once(async || case.plain("letter")).await
            }
        })
    });
    for kind in [Kind::TakeOver, Kind::KeepEffects, Kind::Probe, Kind::Park, Kind::Complete] {
        assert!(mixed.kinds().contains(&kind), "no {kind} was ever seen: {mixed}");
    }
    assert_eq!(mixed.staged.1, 1, "{mixed}");

    let cases = check.cases.load(Ordering::Relaxed);
    println!("crash points: {on}: {cases} cases, {crashes:?}, {:.1?}", begun.elapsed());
}

impl Check {
    /// Every case of one job: what the witness has seen, what the provider has, and what the store
    /// itself counts.
    fn run(&self, pairs: bool, job: impl Fn(Case, Arc<Apart>) -> Job + Send + Sync) -> CrashReport {
        let fates = vec![Fate::DiesBefore, Fate::DiesAfter, Fate::LosesRequest, Fate::LosesReply];
        let next = || self.cases.fetch_add(1, Ordering::Relaxed);
        let report = CrashPoints { fates, pairs }.check_over(
            || (self.store.clone(), format!("crash {}", next())),
            || {
                let case = Case::named(format!("thing {}", self.cases.load(Ordering::Relaxed)));
                let job = job(case.clone(), self.store.clone());
                (job.retry(RetryPolicy::fixed(Duration::from_secs(3), 6)), case)
            },
            (),
            |case, story| {
                for effect in ["charge", "book", "letter"] {
                    if story.effects.contains_key(effect) {
                        once(effect, case.times(effect), story)?;
                    }
                }
                let counted = self.store.wait(count(self.store.as_ref(), &case.name));
                if counted == story.staged {
                    return Ok(());
                }
                Err(format!("{} landed, and the store shows {counted}", story.staged))
            },
        );
        // With one fault a case, what only comes after one is never failed itself.
        assert!(
            if pairs { report.holds() } else { report.breaches + report.missed == 0 },
            "{report}"
        );
        assert_eq!(report.singles, report.calls.len() * 4, "each call, each way");
        report
    }
}
