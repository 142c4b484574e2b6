//! The real worker over each store, whose commits go wrong by a script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onlyonce::local::{LocalQueue, Poller, QueueSettings};
use onlyonce::protocol::{IdempotencyKey, RecordId, Status, Timestamp};
use onlyonce::store::Store;
use onlyonce::test_util::{Fault, FaultStore, SeededEntropy, VirtualClock};
use onlyonce::{Context, Job, RetryPolicy, Router, Worker};

use crate::apart::Apart;
use crate::counted::{add, count};
use crate::crashes::Case;

const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);
const FAULTS: [Fault; 6] = [
    Fault::LoseRequest,
    Fault::LoseReply,
    Fault::Contend,
    Fault::Refuse,
    Fault::Hang,
    Fault::HangAfter,
];
/// The jobs, and how many commits each makes where nothing goes wrong.
const JOBS: [(&str, usize); 4] = [("charge", 2), ("settle", 2), ("letter", 3), ("reserve", 1)];
/// Once, and more often than a worker tries.
const TIMES: [usize; 2] = [1, 5];

#[allow(clippy::disallowed_methods, reason = "how long it took is the machine's time")]
pub fn all_hold(on: &str, making: impl Future<Output = Arc<dyn Store>>) {
    let store = Arc::new(Apart::new(making));
    let (begun, mut cases) = (Instant::now(), 0);
    for (job, commits) in JOBS {
        for fault in FAULTS {
            for (at, times) in (0..commits).flat_map(|at| TIMES.map(|times| (at, times))) {
                let told = format!("{on}: {job}, {fault:?} {times} times from commit {at}");
                let case = Case::named(format!("thing {cases}"));
                run(&store, job, &format!("fault {cases}"), &case, (fault, at, times), &told);
                cases += 1;
            }
        }
    }
    println!("faults: {on}: {cases} cases, {:.1?}", begun.elapsed());
}

fn run(
    store: &Arc<Apart>,
    job: &str,
    key: &str,
    case: &Case,
    (fault, at, times): (Fault, usize, usize),
    told: &str,
) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let script = std::iter::repeat_n(Fault::None, at).chain(std::iter::repeat_n(fault, times));
        let faulty = Arc::new(FaultStore::new(store.clone(), script));
        let clock = Arc::new(VirtualClock::new(START));
        let worker = Worker::builder(faulty.clone())
            .clock(clock.clone())
            .entropy(Arc::new(SeededEntropy::new(0, 0.5)))
            .build(jobs(case, store))
            .unwrap();
        let settings = QueueSettings {
            name: "faults".to_owned(),
            visibility: Duration::from_secs(40),
            max_receives: 100,
        };
        let queue = LocalQueue::new(settings, clock);
        queue.send(job, key, "null");
        let drained = Poller::default().drain(&queue, &worker).await;
        assert!(faulty.commits() >= at + times, "the fault was not met: {told}");
        assert_eq!((drained.deleted, queue.len()), (1, 0), "{told}");

        let id = RecordId::new("default", job, &IdempotencyKey::new(key).unwrap());
        let status = store.load(&id).await.unwrap().expect("there is a record").status;
        let is_completed = status == Status::Completed;
        // Of an intent that may have landed unheard nobody can tell whether it was acted on.
        let is_parked = job == "letter" && status == Status::Unknown && drained.dead == 1;
        assert!(is_completed || is_parked, "{status}: {told}");
        match job {
            "charge" | "settle" => assert_eq!(case.times("charge"), 1, "{told}"),
            "letter" => assert!(case.times("letter") <= 1, "{told}"),
            _ => {}
        }
        assert!(job != "letter" || !is_completed || case.times("letter") == 1, "{told}");
        let staged = usize::from(matches!(job, "settle" | "reserve"));
        assert_eq!(count(store.as_ref(), &case.name).await, staged, "{told}");
    });
}

fn jobs(case: &Case, store: &Arc<Apart>) -> Router {
    let retry = RetryPolicy::fixed(Duration::from_secs(3), 20);
    let [charge, settle, letter, reserve] = std::array::from_fn(|_| case.clone());
    let (settles, reserves) = (store.clone(), store.clone());
    let jobs = [
        Job::new("charge", move |_: (), cx: Context| {
            let case = charge.clone();
            async move { cx.effect("charge").keyed(async |key| case.keyed("charge", &key)).await }
        }),
        Job::new("settle", move |_: (), cx: Context| {
            let (case, one_more) = (settle.clone(), add(settles.as_ref(), &settle.name, 1));
            async move {
                cx.effect("charge").keyed(async |key| case.keyed("charge", &key)).await?;
                cx.stage(one_more).await
            }
        }),
        Job::new("letter", move |_: (), cx: Context| {
            let case = letter.clone();
            async move { cx.effect("letter").at_most_once(async || case.plain("letter")).await }
        }),
        Job::new("reserve", move |_: (), cx: Context| {
            let one_more = add(reserves.as_ref(), &reserve.name, 1);
            async move { cx.stage(one_more).await }
        })
        .fused(),
    ];
    jobs.into_iter().fold(Router::new(), |router, job| router.with(job.retry(retry)))
}
