//! What the examples run on: records in one SQLite file, and a queue in the process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce::local::{Drained, FastClock, LocalQueue, Poller, QueueSettings};
use onlyonce::runtime::Clock;
use onlyonce::store::SqliteStore;
use onlyonce::{BoxError, Router, Worker};

/// A file of records that is gone with its value; its time runs ten times as fast.
pub struct Embedded {
    folder: PathBuf,
    clock: Arc<FastClock>,
}

impl Embedded {
    pub fn new(name: &str) -> Result<Self, BoxError> {
        let folder = std::env::temp_dir().join(format!("onlyonce-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, clock: Arc::new(FastClock::new(10)) })
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("jobs.db")
    }

    /// Delivers these messages (job, key, payload) until each is acknowledged or in quarantine; then
    /// those in quarantine once more, as an operator would, if `redrives` says so.
    pub async fn deliver(
        &self,
        jobs: Router,
        messages: &[(&str, &str, &str)],
        redrives: bool,
    ) -> Result<Drained, BoxError> {
        let store = SqliteStore::open(self.file()).await?;
        let worker = Worker::builder(store).clock(self.clock.clone()).build(jobs)?;
        let queue = LocalQueue::new(QueueSettings::default(), worker.shared_clock());
        for (job, key, payload) in messages {
            queue.send(job, key, payload);
        }
        let drained = Poller::default().drain(&queue, &worker).await;
        if !redrives {
            return Ok(drained);
        }
        // A failed job is run again for messages that were sent clearly after its failure.
        self.clock.sleep_until(self.clock.now() + Duration::from_secs(6)).await;
        println!("-- {} redriven", queue.redrive());
        Ok(Poller::default().drain(&queue, &worker).await)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
