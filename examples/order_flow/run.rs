//! The run: orders come in, the worker and the relay are killed, and in the end everything is counted.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use onlyonce::producer::{Command, Producer};
use onlyonce::runtime::{Clock, SystemClock, before};
use onlyonce::store::PostgresStore;
use onlyonce::{BoxError, IdempotencyKey, sdk};
use tokio::signal::unix::{SignalKind, signal};

use crate::Order;
use crate::mails::Mails;
use crate::processes::{Lives, Victim};
use crate::queues::Queues;
use crate::server::{Foreign, Postgres};

const ORDERS: usize = 200;
/// Orders that come in together, the next of them when both have been killed once more: so the kills
/// are spread over the whole run.
const TOGETHER: usize = 10;
/// Each is killed at least so often.
const KILLS: usize = ORDERS / TOGETHER;
/// How long the two live while orders come in.
const SHORT: Lives = 50..1_500;
/// And afterwards, until the last mail. A poll that its worker has not lived to see the end of goes on
/// at an emulator for up to 20 s, and what it receives nobody has until it is visible again: lives as
/// short as before would leave the living ones little to do.
const LONG: Lives = 2_000..6_000;
/// The longest it may take until the last mail, and until the last copies are known as done.
const LIMIT: Duration = Duration::from_secs(180);
const QUIET: Duration = Duration::from_secs(40);

const EMULATOR: &str = "\
AWS_ENDPOINT_URL is not set. This starts an SQS, which `make tools` has installed:
  .venv/bin/ministack &
And this says where it is:
  export AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_REGION=us-east-1
  export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test";

pub async fn run() -> Result<ExitCode, BoxError> {
    if std::env::var_os("AWS_ENDPOINT_URL").is_none() {
        return Err(EMULATOR.into());
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let postgres = Postgres::start();
    eprintln!("postgres: {}", postgres.url());
    let name = format!("order-flow-{:016x}", fastrand::Rng::new().u64(..));
    let sdk = sdk::load().await;
    let queues = Queues::create(&sdk, &name).await?;
    eprintln!("queues: {}, {}", queues.url, queues.dlq_url);
    let producer = Producer::new(&sdk, &queues.url);
    // Whichever way this ends, what it has started ends with it.
    let ended = tokio::select! {
        ended = Box::pin(flow(producer, &queues, &postgres, &name)) => ended,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    };
    let deleted = queues.delete().await;
    ended.and_then(|code| deleted.map(|()| code))
}

async fn flow(
    producer: Producer,
    queues: &Queues,
    postgres: &Postgres,
    name: &str,
) -> Result<ExitCode, BoxError> {
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::Rng::new().u64(..),
    };
    eprintln!("SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mails = Mails::open(rng.fork()).await?;
    eprintln!("mail API: http://{}/mails", mails.address);
    PostgresStore::create(&postgres.url()).await?;
    let database = postgres.foreign().await;
    let orders = "CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, cents BIGINT)";
    database.batch_execute(orders).await?;

    let folder = Folder::new(name)?;
    let jobs = include_str!("jobs.toml").replace("QUEUE_URL", &queues.url);
    let jobs = jobs.replace("MAIL_API", &mails.address.to_string());
    std::fs::write(folder.0.join("jobs.toml"), jobs)?;
    let environment = |relay: &str| {
        [
            ("ONLYONCE_STORE", postgres.url()),
            ("ONLYONCE_JOBS", folder.0.join("jobs.toml").display().to_string()),
            ("ONLYONCE_QUEUE_URL", queues.url.clone()),
            ("ONLYONCE_DLQ_URL", queues.dlq_url.clone()),
            ("ONLYONCE_RELAY", relay.to_owned()),
            // Two polls at once.
            ("ONLYONCE_CONCURRENCY", "20".to_owned()),
        ]
    };
    let mut victims = [
        Victim::start("worker", &environment("off"), (SHORT, &mut rng))?,
        Victim::start("relay", &environment("only"), (SHORT, &mut rng))?,
    ];
    let flow = Flow { producer, queues, database, mails };
    let give_up = SystemClock.now() + LIMIT;
    let mailed = before(&SystemClock, give_up, Box::pin(flow.run(&mut victims, &mut rng))).await;
    mailed.unwrap_or(Ok(()))?;
    flow.until_quiet().await?;
    // They have nothing left to do, and end here.
    let [worker, relay] = victims.map(|victim| victim.kills);
    let faults = flow.faults(worker, relay).await?;
    for fault in &faults {
        eprintln!("wrong: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Flow<'a> {
    producer: Producer,
    queues: &'a Queues,
    database: Foreign,
    mails: Mails,
}

impl Flow<'_> {
    /// Places the orders, and kills, until each has had its mail.
    async fn run(
        &self,
        victims: &mut [Victim; 2],
        rng: &mut fastrand::Rng,
    ) -> Result<(), BoxError> {
        let mut placed = 0;
        loop {
            let kills = victims.iter().map(|victim| victim.kills).min().unwrap_or_default();
            while placed < ORDERS && placed <= kills * TOGETHER {
                self.place(placed..placed + TOGETHER).await?;
                placed += TOGETHER;
                eprintln!("{placed} orders placed");
            }
            let next = victims.iter().map(|victim| victim.dies_at).min().unwrap_or_default();
            tokio::select! {
                () = self.mails.reached(ORDERS), if kills >= KILLS => return Ok(()),
                () = SystemClock.sleep_until(next) => {}
            }
            let lives = if placed < ORDERS { SHORT } else { LONG };
            for victim in victims.iter_mut() {
                victim.kill_if_due((lives.clone(), rng))?;
            }
        }
    }

    /// Each order is sent twice, as by a client that has not heard the first answer. Its key is made
    /// from the order, and so is the same.
    async fn place(&self, numbers: Range<usize>) -> Result<(), BoxError> {
        let mut commands = Vec::new();
        for n in numbers {
            let (id, customer) = (format!("order-{n:03}"), format!("customer-{:02}", n % 40));
            let order = Order { id, customer, cents: 100 + i64::try_from(n)? };
            let key = IdempotencyKey::new(format!("{}:place", order.id))?;
            let command = Command::new("order.place", key, &order)?;
            commands.extend([command.clone(), command]);
        }
        self.producer.send_all(commands).await.into_iter().try_for_each(|sent| sent.map(drop))?;
        Ok(())
    }

    /// Nobody is killed any more: returns when the last copies are known as done.
    async fn until_quiet(&self) -> Result<(), BoxError> {
        let give_up = SystemClock.now() + QUIET;
        while SystemClock.now() < give_up
            && (self.queues.len().await?.0 > 0 || self.events().await? > 0)
        {
            SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Events that are not sent on yet.
    async fn events(&self) -> Result<i64, BoxError> {
        self.number("SELECT count(*) FROM onlyonce_outbox").await
    }

    async fn number(&self, sql: &str) -> Result<i64, BoxError> {
        Ok(self.database.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// Counts everything, says it, and answers what is wrong.
    async fn faults(&self, worker: usize, relay: usize) -> Result<Vec<String>, BoxError> {
        let ledger = self.mails.ledger();
        let (requests, mails, per_order) =
            (ledger.requests, ledger.mails.len(), ledger.per_order());
        let lost = ORDERS - per_order.len().min(ORDERS);
        let twice = per_order.values().filter(|mails| **mails > 1).count();
        let rows = self.database.query("SELECT id FROM orders", &[]).await?;
        let rows = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let unplaced = per_order.keys().filter(|id| !rows.iter().any(|row| row == **id)).count();
        let (queued, dead) = self.queues.len().await?;
        let events = self.events().await?;
        // Nothing else fails there.
        let again = "SELECT count(*) FROM onlyonce WHERE job = 'order.placed' AND attempt > 1";
        let again = self.number(again).await?;

        println!(
            "{requests} requests for {mails} mails: {} failed, {} answered wrongly, {} not waited \
             for; {again} events of a dead relay sent by another",
            ledger.failed, ledger.unheard, ledger.hung_up
        );
        println!(
            "{ORDERS} orders, {mails} mails, {lost} lost, {twice} twice; worker killed {worker} \
             times, relay killed {relay} times"
        );
        let wrong = [
            (lost > 0, format!("{lost} orders have had no mail")),
            (twice > 0, format!("{twice} orders have had more than one mail")),
            (unplaced > 0, format!("{unplaced} mails are of orders that have no row")),
            (rows.len() != ORDERS, format!("{} orders have a row", rows.len())),
            (events > 0, format!("{events} events are in the outbox")),
            (queued > 0, format!("{queued} messages are in the queue")),
            (dead > 0, format!("{dead} messages are in the dead-letter queue")),
            (ledger.refused > 0, format!("{} requests had a wrong key, or none", ledger.refused)),
            (worker.min(relay) < KILLS, format!("they were not killed {KILLS} times each")),
        ];
        Ok(wrong.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fault)| fault).collect())
    }
}

/// A folder that is gone with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self, BoxError> {
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
