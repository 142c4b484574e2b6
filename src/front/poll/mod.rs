//! The worker outside Lambda: receives, runs, deletes what is done, until it is told to stop.

mod delete;
mod health;
mod polling;
mod receive;

use std::net::SocketAddr;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use tokio::sync::watch;
use tracing::{info, warn};

use self::health::Health;
use self::polling::Polling;
#[cfg(feature = "cli")]
pub(crate) use self::receive::read;
use super::queue::Queue;
use crate::error::{Error, ErrorKind};
use crate::service::Worker;

/// Messages in one receive, or in one batch of deletes: SQS's most.
const BATCH: usize = 10;
/// How long running jobs may go on after a stop: less than the half minute after which container
/// platforms kill.
const GRACE: Duration = Duration::from_secs(20);
/// How long releasing them may take.
const RELEASE: Duration = Duration::from_secs(5);

/// One queue, polled.
pub struct Poll {
    client: Client,
    url: String,
    arn: Option<String>,
    /// For how long a received message is hidden at a time, and its claim believed.
    visibility: Duration,
    health: Option<SocketAddr>,
}

impl Poll {
    /// Reads the queue's settings.
    pub async fn open(sdk: &SdkConfig, url: impl Into<String>) -> Result<Self, Error> {
        let url = url.into();
        // A long poll outlasts the time limits of other calls.
        let patient = TimeoutConfig::builder()
            .connect_timeout(Duration::from_secs(2))
            .operation_attempt_timeout(Duration::from_secs(25))
            .operation_timeout(Duration::from_secs(60))
            .build();
        let config = aws_sdk_sqs::config::Builder::from(sdk).timeout_config(patient).build();
        let client = Client::from_conf(config);
        let settings = client
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::QueueArn)
            .attribute_names(QueueAttributeName::VisibilityTimeout)
            .send()
            .await
            .map_err(|error| {
                Error::new(ErrorKind::Queue, "read the queue's settings").with_source(error)
            })?;
        let settings = settings.attributes.unwrap_or_default();
        let seconds = settings.get(&QueueAttributeName::VisibilityTimeout);
        let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(30);
        if seconds == 0 {
            return Err(Error::new(ErrorKind::Config, "read the queue's settings").with_detail(
                "the queue's visibility timeout is 0, which leaves no time for a job; set it to \
                 half a minute, say: it is renewed while a job runs",
            ));
        }
        let arn = settings.get(&QueueAttributeName::QueueArn).cloned();
        Ok(Self { client, url, arn, visibility: Duration::from_secs(seconds), health: None })
    }

    /// Tells how it is at this address, by HTTP: 200, or 503 while it stops and once it has not
    /// managed to receive for a minute; and in JSON since when it polls, when a receive last
    /// worked, how many jobs run, and what was counted since the start.
    #[must_use]
    pub fn health(self, address: Option<SocketAddr>) -> Self {
        Self { health: address, ..self }
    }

    /// Serves until `stop` says so. Then nothing more is received or claimed, running jobs finish,
    /// and those that have not after 20 s are stopped and released. An error if it cannot begin.
    ///
    /// Each message runs for itself, those of a FIFO group one after another; at most as many at
    /// once as the worker's concurrency, and none is received before there is room for it. While
    /// a job runs, its claim and its message's invisibility are renewed together.
    pub async fn serve(
        &self,
        worker: &Worker,
        queue: &dyn Queue,
        stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let clock = worker.shared_clock();
        let health = Health::new(clock.now(), worker.meter().clone());
        let _answering = match self.health {
            Some(address) => Some(health::serve(address, health.clone(), clock.clone()).await?),
            None => None,
        };
        info!(queue = self.url, visibility_s = self.visibility.as_secs(), "polling");
        let polling = Polling::new(self, worker, queue, health.clone(), stop.clone());
        let mut told = stop;
        let give_up = async {
            // An error means that nobody can say stop any more; then it is as good as said.
            let _ = told.wait_for(|is_stopping| *is_stopping).await;
            health.stopping();
            info!("stopping: running jobs finish, nothing more is received");
            let by = clock.now() + GRACE;
            worker.stop_by(by);
            clock.sleep_until(by + RELEASE).await;
        };
        tokio::select! {
            () = polling.to_the_end() => info!("stopped"),
            () = give_up => warn!("stopped with jobs that would not stop; their messages come again"),
        }
        Ok(())
    }
}

impl std::fmt::Debug for Poll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Poll({})", self.url)
    }
}
