//! The run: orders come in, the worker and the relay are killed, and in the end everything is counted.

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
use crate::processes::Victim;
use crate::queues::Queues;
use crate::server::{Foreign, Postgres};

const ORDERS: usize = 200;
/// Orders that come in together, the next of them when both have been killed once more: so the kills
/// are spread over the whole run.
const TOGETHER: usize = 10;
/// Each is killed at least so often.
const KILLS: usize = ORDERS / TOGETHER;
/// The longest the run may take, and what comes after it.
const LIMIT: Duration = Duration::from_secs(240);
const EMULATOR: &str = "\
AWS_ENDPOINT_URL is not set. Start an SQS (`make tools` installs it), and say where it is:
  .venv/bin/ministack &
  export AWS_ENDPOINT_URL=http://127.0.0.1:4566 AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test";

pub async fn run() -> Result<ExitCode, BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    // Whichever way this ends, what it has started ends with it.
    tokio::select! {
        ended = Box::pin(start()) => ended,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    }
}

async fn start() -> Result<ExitCode, BoxError> {
    if std::env::var_os("AWS_ENDPOINT_URL").is_none() {
        return Err(EMULATOR.into());
    }
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => fastrand::Rng::new().u64(..),
    };
    eprintln!("SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let name = format!("order-flow-{:016x}", fastrand::Rng::new().u64(..));

    let postgres = Postgres::start();
    PostgresStore::create(&postgres.url()).await?;
    let database = postgres.foreign().await;
    database
        .batch_execute(
            "CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents BIGINT NOT NULL)",
        )
        .await?;
    eprintln!("postgres: {}", postgres.url());
    let sdk = sdk::load().await;
    let queues = Queues::create(&sdk, &name).await?;
    eprintln!("queues: {}, {}", queues.url, queues.dlq_url);
    let mails = Mails::open(rng.fork()).await?;
    eprintln!("mail API: http://{}", mails.address);

    let folder = Folder::new(&name)?;
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
        ]
    };
    let mut victims = [
        Victim::start("worker", &environment("off"), &mut rng)?,
        Victim::start("relay", &environment("only"), &mut rng)?,
    ];
    let flow = Flow { producer: Producer::new(&sdk, &queues.url), queues, database, mails };
    let give_up = SystemClock.now() + LIMIT;
    let ran = before(&SystemClock, give_up, Box::pin(flow.until_mailed(&mut victims, &mut rng)));
    let mut faults = match ran.await {
        Some(ran) => Vec::from_iter(ran.err().map(|error| error.to_string())),
        None => vec![format!("not done within {} s", LIMIT.as_secs())],
    };
    if faults.is_empty() {
        flow.until_quiet().await?;
    }
    let [worker, relay] = victims.map(|victim| victim.kills);
    faults.extend(flow.faults(worker, relay).await?);
    flow.queues.delete().await?;
    for fault in &faults {
        eprintln!("wrong: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Flow {
    producer: Producer,
    queues: Queues,
    database: Foreign,
    mails: Mails,
}

impl Flow {
    /// Places the orders, and kills, until each has had its mail.
    async fn until_mailed(
        &self,
        victims: &mut [Victim; 2],
        rng: &mut fastrand::Rng,
    ) -> Result<(), BoxError> {
        let mut placed = 0;
        loop {
            let killed = victims.iter().map(|victim| victim.kills).min().unwrap_or_default();
            while placed < ORDERS && placed <= killed * TOGETHER {
                self.place(placed..placed + TOGETHER).await?;
                placed += TOGETHER;
                eprintln!("{placed} orders placed");
            }
            let next = victims.iter().map(|victim| victim.dies_at).min().unwrap_or_default();
            tokio::select! {
                () = self.mails.reached(ORDERS), if killed >= KILLS => return Ok(()),
                () = SystemClock.sleep_until(next) => {}
            }
            for victim in victims.iter_mut() {
                victim.kill_if_due(rng)?;
            }
        }
    }

    /// Each order is sent twice, as by a client that has not heard the first answer: the key is made
    /// from the order, and so is the same.
    async fn place(&self, numbers: std::ops::Range<usize>) -> Result<(), BoxError> {
        let mut commands = Vec::new();
        for n in numbers {
            let order = Order {
                id: format!("order-{n:03}"),
                customer: format!("customer-{:02}", n % 40),
                cents: 100 + i64::try_from(n)?,
            };
            let key = IdempotencyKey::new(format!("{}:place", order.id))?;
            let command = Command::new("order.place", key, &order)?;
            commands.extend([command.clone(), command]);
        }
        self.producer.send_all(commands).await.into_iter().try_for_each(|sent| sent.map(drop))?;
        Ok(())
    }

    /// Nobody is killed any more: waits until the last copies are known as done.
    async fn until_quiet(&self) -> Result<(), BoxError> {
        let give_up = SystemClock.now() + Duration::from_secs(60);
        while SystemClock.now() < give_up && (self.queues.len().await?.0, self.waiting().await?) != (0, 0) {
            SystemClock.sleep_until(SystemClock.now() + Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Events that are not sent on yet.
    async fn waiting(&self) -> Result<i64, BoxError> {
        self.count("SELECT count(*) FROM onlyonce_outbox").await
    }

    async fn count(&self, sql: &str) -> Result<i64, BoxError> {
        Ok(self.database.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// Counts everything, says it, and answers what is wrong.
    async fn faults(&self, worker: usize, relay: usize) -> Result<Vec<String>, BoxError> {
        let ledger = self.mails.ledger();
        let mails = ledger.per_order();
        let rows = self.database.query("SELECT id FROM orders", &[]).await?;
        let rows = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        let lost = ORDERS - mails.len().min(ORDERS);
        let twice = mails.values().filter(|count| **count > 1).count();
        let unplaced = mails.keys().filter(|order| !rows.iter().any(|row| row == *order)).count();
        let (queued, dead) = self.queues.len().await?;
        let waiting = self.waiting().await?;
        let again = self.count("SELECT count(*) FROM onlyonce WHERE token > 1").await?;

        println!(
            "{} requests for {} mails: {} failed, {} unheard of; {again} jobs run again",
            ledger.requests,
            ledger.mails.len(),
            ledger.failed,
            ledger.unheard,
        );
        println!(
            "{ORDERS} orders, {} mails, {lost} lost, {twice} twice; worker killed {worker} times, \
             relay killed {relay} times",
            ledger.mails.len(),
        );
        let right = [
            (lost == 0, format!("{lost} orders without a mail")),
            (twice == 0, format!("{twice} orders with more than one mail")),
            (unplaced == 0, format!("{unplaced} mails of orders that were not placed")),
            (rows.len() == ORDERS, format!("{} rows of {ORDERS} orders", rows.len())),
            (waiting == 0, format!("{waiting} events in the outbox")),
            (queued == 0, format!("{queued} messages in the queue")),
            (dead == 0, format!("{dead} messages in the dead-letter queue")),
            (ledger.refused == 0, format!("{} requests that no mail came of", ledger.refused)),
            (worker.min(relay) >= KILLS, format!("fewer than {KILLS} kills of each")),
        ];
        Ok(right.into_iter().filter(|(is_right, _)| !is_right).map(|(_, fault)| fault).collect())
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
