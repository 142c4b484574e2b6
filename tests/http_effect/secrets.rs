//! Secrets kept in SSM and in Secrets Manager, against the services at `AWS_ENDPOINT_URL`.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use aws_sdk_ssm::types::ParameterType;
use onlyonce::protocol::Timestamp;
use onlyonce::runtime::{Clock, SystemClock};
use onlyonce::sdk;
use onlyonce::service::Ending;
use tracing_subscriber::fmt::MakeWriter;

use crate::receiver::Receiver;
use crate::{Duration, EMPTY, Jobs, keyed};

/// The machine's clock, set forward by a test.
#[derive(Default)]
struct Ahead(AtomicU64);

impl Ahead {
    fn by(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

#[async_trait]
impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        SystemClock.now() + self.by()
    }

    async fn sleep_until(&self, at: Timestamp) {
        SystemClock.sleep_until(at - self.by()).await;
    }
}

/// All that is logged, at every level.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Logged {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn log_everything() -> (Logged, tracing::subscriber::DefaultGuard) {
    let logged = Logged::default();
    let lines = tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(logged.clone())
        .finish();
    (logged, tracing::subscriber::set_default(lines))
}

fn name() -> String {
    format!("/secret-test/{:016x}", fastrand::Rng::new().u64(..))
}

async fn ssm() -> aws_sdk_ssm::Client {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local SSM and sets it"
    );
    aws_sdk_ssm::Client::new(&sdk::load().await)
}

async fn put(ssm: &aws_sdk_ssm::Client, name: &str, value: &str) {
    let put = ssm.put_parameter().name(name).value(value).overwrite(true);
    put.r#type(ParameterType::SecureString).send().await.unwrap();
}

fn kept_in(place: &str, name: &str) -> String {
    keyed(&format!("secret = {{ header = \"Authorization\", {place} = \"{name}\" }}"))
}

#[tokio::test]
async fn a_kept_secret_arrives_in_its_header_and_nowhere_else() {
    let (logged, _guard) = log_everything();
    let (parameter, secret) = (name(), name());
    put(&ssm().await, &parameter, "Bearer first-s3cret").await;
    let manager = aws_sdk_secretsmanager::Client::new(&sdk::load().await);
    let create = manager.create_secret().name(&secret).secret_string("Bearer other-s3cret");
    create.send().await.unwrap();

    let refuse = format!("400 No{EMPTY}");
    let receiver = Receiver::start(&["200 OK\r\ncontent-length: 0\r\n\r\n", &refuse]).await;
    for (place, name) in [("ssm", &parameter), ("secretsmanager", &secret)] {
        let jobs = Jobs::new(&kept_in(place, name), &receiver);
        for key in ["one", "two"] {
            let outcome = jobs.run(key, "{\"id\":7}").await;
            let shown = format!("{outcome:?} {:?}", jobs.worker);
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }
    let seen = receiver.seen();
    let sent: Vec<_> =
        seen.iter().map(|request| request.header("authorization").unwrap()).collect();
    let (first, other) = ("Bearer first-s3cret", "Bearer other-s3cret");
    assert_eq!(sent, [first, first, other, other]);

    let logged = logged.text();
    // What the test itself puts there is the SDK's request; the worker reads, and sends, the rest.
    assert!(logged.contains("GetParameter"), "the log is there");
    assert!(!logged.contains("s3cret"), "{logged}");
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_waited_for_and_named() {
    let ssm = ssm().await;
    let receiver = Receiver::start(&[]).await;
    let (parameter, secret) = (name(), name());
    for (place, name) in [("ssm", &parameter), ("secretsmanager", &secret)] {
        let outcome = Jobs::new(&kept_in(place, name), &receiver).run("k", "{\"id\":7}").await;
        assert!(matches!(outcome.ending, Ending::Released(_)), "{outcome:?}");
        let error = outcome.error.unwrap();
        assert!(error.contains(name.as_str()) && error.contains("NotFound"), "{error}");
    }
    assert_eq!(receiver.seen().len(), 0);
    put(&ssm, &parameter, "Bearer s3cret").await;
    let outcome = Jobs::new(&kept_in("ssm", &parameter), &receiver).run("k", "{\"id\":7}").await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_rotated_secret_is_read_again_when_the_provider_refuses_the_old_one() {
    let (ssm, parameter) = (ssm().await, name());
    put(&ssm, &parameter, "Bearer old").await;
    let no = format!("401 No{EMPTY}");
    let yes = format!("200 OK{EMPTY}");
    let receiver = Receiver::start(&[&yes, &no, &no, &yes, &no, &no]).await;
    let clock = Arc::new(Ahead::default());
    let jobs = Jobs::at(clock.clone(), &kept_in("ssm", &parameter), &receiver);
    jobs.run("before", "{\"id\":7}").await;
    put(&ssm, &parameter, "Bearer new").await;

    // Read within the last minute: not yet read again, and no message is given up for it.
    let outcome = jobs.run("during", "{\"id\":7}").await;
    let Ending::Released(at) = outcome.ending else { panic!("{outcome:?}") };
    let wait = at.since(clock.now()).as_secs();
    assert!((50..=60).contains(&wait), "{wait}");

    clock.0.store(61, Ordering::SeqCst);
    let outcome = jobs.run("during", "{\"id\":7}").await;
    assert!(matches!(outcome.ending, Ending::Completed(_)), "{outcome:?}");
    let seen = receiver.seen();
    let sent: Vec<_> =
        seen.iter().map(|request| request.header("authorization").unwrap()).collect();
    assert_eq!(sent, ["Bearer old", "Bearer old", "Bearer old", "Bearer new"]);
    // One effect, one key.
    assert_eq!(seen[2].header("idempotency-key"), seen[3].header("idempotency-key"));

    // A value that has not changed is refused for good.
    clock.0.store(122, Ordering::SeqCst);
    let outcome = jobs.run("after", "{\"id\":7}").await;
    assert!(matches!(outcome.ending, Ending::Failed(_)), "{outcome:?}");
    assert_eq!(receiver.seen().len(), 5);
}
