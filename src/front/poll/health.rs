//! What a polling worker says of itself, to whoever looks after it: one JSON object over plain HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::error::{Error, ErrorKind};
use crate::protocol::Timestamp;
use crate::runtime::{Clock, Task, before, spawn};
use crate::telemetry::{Count, Meter};

/// Without a receive that worked for so long, a worker that has room for jobs is not healthy. A long poll takes a third.
const SILENCE: Duration = Duration::from_secs(60);
/// How long one question may take.
const ASKING: Duration = Duration::from_secs(2);
/// The longest request that is read.
const MOST: usize = 8 * 1024;
/// Questions answered at once; more wait for their turn.
const AT_ONCE: usize = 16;

/// How a poller is.
#[derive(Debug)]
pub(super) struct Health {
    since: Timestamp,
    received: AtomicU64,
    /// When a receive last worked, or there was again room for one.
    heard: AtomicU64,
    trying: AtomicUsize,
    running: AtomicUsize,
    is_stopping: AtomicBool,
    meter: Arc<Meter>,
}

/// Counts as one who tries to receive while it is kept.
pub(super) struct Trying<'a>(&'a Health);

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        self.0.trying.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts as a running job while it is kept.
pub(super) struct Running<'a>(&'a Health);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Health {
    pub fn new(now: Timestamp, meter: Arc<Meter>) -> Arc<Self> {
        Arc::new(Self {
            since: now,
            received: AtomicU64::new(0),
            heard: AtomicU64::new(now.millis()),
            trying: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            meter,
        })
    }

    /// A receive has worked, whether it brought messages or none.
    pub fn received(&self, now: Timestamp) {
        self.received.fetch_max(now.millis(), Ordering::Relaxed);
        self.heard.fetch_max(now.millis(), Ordering::Relaxed);
    }

    /// There is room for more jobs. While every place is taken by a job, nobody tries to receive,
    /// and that is no fault.
    pub fn trying(&self, now: Timestamp) -> Trying<'_> {
        if self.trying.fetch_add(1, Ordering::Relaxed) == 0 {
            self.heard.fetch_max(now.millis(), Ordering::Relaxed);
        }
        Trying(self)
    }

    pub fn stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub fn running(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(self)
    }

    /// The status, and the object.
    fn now(&self, now: Timestamp) -> (u16, String) {
        let received = self.received.load(Ordering::Relaxed);
        let is_stopping = self.is_stopping.load(Ordering::Relaxed);
        let heard = Timestamp::from_millis(self.heard.load(Ordering::Relaxed));
        let is_trying = self.trying.load(Ordering::Relaxed) > 0;
        let is_silent = is_trying && now.since(heard) > SILENCE;
        let status = if is_stopping || is_silent { 503 } else { 200 };
        let body = json!({
            "status": match (is_stopping, is_silent) {
                (true, _) => "stopping",
                (false, true) => "not receiving",
                (false, false) => "polling",
            },
            "polling_since": self.since.millis(),
            "last_receive": (received > 0).then_some(received),
            "running": self.running.load(Ordering::Relaxed),
            "counts": self.counts(),
        });
        (status, body.to_string())
    }

    /// What the worker has counted since its start, by the names of the metrics.
    fn counts(&self) -> Value {
        let mut counts = Map::new();
        for (count, so_far) in Count::ALL.iter().zip(self.meter.counts()) {
            let (name, cause) = count.name();
            match cause {
                None => drop(counts.insert(name.to_owned(), so_far.into())),
                Some(cause) => {
                    let causes = counts.entry(name).or_insert_with(|| json!({}));
                    if let Some(causes) = causes.as_object_mut() {
                        causes.insert(cause.to_owned(), so_far.into());
                    }
                }
            }
        }
        counts.into()
    }
}

/// Answers every request at `address` with how the poller is, as long as the task is kept.
pub(super) async fn serve(
    address: SocketAddr,
    health: Arc<Health>,
    clock: Arc<dyn Clock>,
) -> Result<Task<()>, Error> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Error::new(ErrorKind::Config, "listen at ONLYONCE_HEALTH").with_source(error)
    })?;
    Ok(spawn(async move {
        let mut answering: Vec<Task<()>> = Vec::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of files, say: others may end meanwhile.
                clock.sleep_until(clock.now() + ASKING).await;
                continue;
            };
            answering.retain(|task| !task.is_finished());
            if answering.len() >= AT_ONCE
                && let Some(mut first) = (!answering.is_empty()).then(|| answering.remove(0))
            {
                // It is bounded, and so is the wait for it.
                let _ = first.join().await;
            }
            let (health, clock) = (health.clone(), clock.clone());
            answering.push(spawn(async move {
                let by = clock.now() + ASKING;
                before(clock.as_ref(), by, answer(&stream, &health, clock.as_ref())).await;
            }));
        }
    }))
}

/// Whatever is asked, the answer is the same. A client that breaks off gets none.
async fn answer(stream: &TcpStream, health: &Health, clock: &dyn Clock) -> Option<()> {
    let mut asked = Vec::new();
    let mut part = [0; 1024];
    while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.readable().await.ok()?;
        match stream.try_read(&mut part) {
            Ok(0) => return None,
            Ok(read) => asked.extend_from_slice(part.get(..read)?),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
        if asked.len() > MOST {
            return None;
        }
    }
    let (status, body) = health.now(clock.now());
    let reason = if status == 200 { "OK" } else { "Service Unavailable" };
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\n\r\n{}",
        body.len(),
        if asked.starts_with(b"HEAD ") { "" } else { &body }
    );
    let mut left = answer.as_bytes();
    while !left.is_empty() {
        stream.writable().await.ok()?;
        match stream.try_write(left) {
            Ok(written) => left = left.get(written..)?,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_900_000_000_000);

    fn says(health: &Health, now: Timestamp) -> (u16, serde_json::Value) {
        let (status, body) = health.now(now);
        (status, serde_json::from_str(&body).unwrap())
    }

    #[test]
    fn a_worker_that_receives_is_healthy_and_one_that_does_not_for_a_minute_is_not() {
        let health = Health::new(START, Arc::new(Meter::new()));
        let trying = health.trying(START);
        let (status, body) = says(&health, START + SILENCE);
        assert_eq!((status, &body["status"]), (200, &json!("polling")));
        assert_eq!(body["last_receive"], json!(null));
        assert_eq!(says(&health, START + SILENCE * 2).0, 503, "it never received");

        health.received(START + SILENCE * 2);
        let running = health.running();
        let (status, body) = says(&health, START + SILENCE * 3);
        assert_eq!((status, &body["running"]), (200, &json!(1)));
        assert_eq!(body["polling_since"], json!(START.millis()));
        assert_eq!(body["last_receive"], json!((START + SILENCE * 2).millis()));
        drop(running);
        let (status, body) = says(&health, START + SILENCE * 4);
        assert_eq!((status, &body["status"]), (503, &json!("not receiving")));
        assert_eq!(body["running"], json!(0));

        // Every place is taken for an hour; then there is room again.
        drop(trying);
        assert_eq!(says(&health, START + SILENCE * 60).0, 200);
        let _trying = health.trying(START + SILENCE * 60);
        assert_eq!(says(&health, START + SILENCE * 61).0, 200);
        assert_eq!(says(&health, START + SILENCE * 62).0, 503);
    }

    #[test]
    fn what_was_counted_is_there_by_name() {
        let meter = Arc::new(Meter::new());
        let health = Health::new(START, meter.clone());
        meter.count(Count::Claimed);
        meter.count(Count::QuarantinedMismatch);
        let (_, body) = says(&health, START);
        assert_eq!(body["counts"]["Claimed"], json!(1));
        assert_eq!(body["counts"]["Completed"], json!(0));
        assert_eq!(body["counts"]["Quarantined"]["mismatch"], json!(1));
        assert_eq!(body["counts"]["Quarantined"]["failed"], json!(0));
    }

    #[test]
    fn a_worker_that_stops_is_not_to_be_counted_on() {
        let health = Health::new(START, Arc::new(Meter::new()));
        health.received(START);
        health.stopping();
        let (status, body) = says(&health, START);
        assert_eq!((status, &body["status"]), (503, &json!("stopping")));
    }
}
