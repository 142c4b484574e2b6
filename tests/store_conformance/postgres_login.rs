//! Getting in to Postgres: passwords, and TLS with certificates of the test's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onlyonce::Error;
use onlyonce::error::ErrorKind;
use onlyonce::store::{Commit, PostgresStore, Store};

use crate::records::first_claim;
use crate::server::{Postgres, give};

/// A server that is reached by TCP, with a role that has a password, and the tables.
async fn guarded(settings: &[&str]) -> Postgres {
    let settings = [&["fsync=off", "listen_addresses=127.0.0.1"], settings].concat();
    let server = Postgres::with(&settings);
    PostgresStore::create(&server.url()).await.unwrap();
    let role = "CREATE ROLE ada LOGIN PASSWORD 's3cr@t';
        GRANT SELECT, INSERT, UPDATE, DELETE ON onlyonce, onlyonce_outbox TO ada;
        GRANT SELECT ON onlyonce_schema TO ada";
    server.foreign().await.batch_execute(role).await.unwrap();
    server
}

async fn claims(url: &str) -> Result<(), Error> {
    let store = PostgresStore::open_existing(url).await?;
    let (write, _) = first_claim("k", "first");
    let commit = store.commit(&write, &[]).await?;
    assert!(matches!(commit, Commit::Applied | Commit::Conflict(Some(_))));
    Ok(())
}

fn shows_nothing(error: &Error) -> String {
    let said = format!("{error} {error:?}");
    assert!(!said.contains("s3cr") && !said.contains("wr0ng"), "{said}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_for_good_and_shown_nowhere() {
    let server = guarded(&[]).await;
    let to = |login: &str, database: &str| {
        format!("postgres://{login}@127.0.0.1:{}/{database}", server.port())
    };
    let url = |login: &str| to(login, "postgres");
    claims(&url("ada:s3cr%40t")).await.unwrap();
    let wrong = claims(&url("ada:wr0ng")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::StoreRefused);
    let said = shows_nothing(&wrong);
    assert!(said.contains("password authentication failed"), "{said}");
    assert!(said.contains("127.0.0.1"), "{said}");
    let without = claims(&url("ada")).await.unwrap_err();
    assert_eq!(without.kind(), ErrorKind::StoreRefused);
    assert!(without.to_string().contains("password"), "{without}");
    let nowhere = claims(&to("ada:s3cr%40t", "none")).await.unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::StoreRefused, "{nowhere}");
    assert!(nowhere.to_string().contains("does not exist"), "{nowhere}");
    // An @ that is not written as %40 tears the password apart.
    let torn = claims(&url("ada:s3cr@t")).await.unwrap_err();
    assert_eq!(torn.kind(), ErrorKind::Config);
    shows_nothing(&torn);
    let store = PostgresStore::open_existing(&url("ada:s3cr%40t")).await.unwrap();
    assert_eq!(format!("{store:?}"), format!("PostgresStore(127.0.0.1:{})", server.port()));
}

/// A root, and a certificate for `localhost` that comes from it.
struct Certificates(PathBuf);

impl Certificates {
    fn new() -> Self {
        let name = format!("onlyonce-tls-{:016x}", fastrand::Rng::new().u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let made = Self(folder);
        made.openssl("root", &["-subj", "/CN=root of the test"]);
        let root = [made.file("root.pem"), made.file("root.key")];
        let [root, key] = root.map(|path| path.display().to_string());
        made.openssl(
            "server",
            &[
                "-subj",
                "/CN=server",
                "-addext",
                "subjectAltName=DNS:localhost",
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-CA",
                &root,
                "-CAkey",
                &key,
            ],
        );
        give(&made.file("server.key"), true);
        give(&made.file("server.pem"), false);
        made
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn openssl(&self, name: &str, more: &[&str]) {
        let status = Command::new("openssl")
            .args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-sha256"])
            .arg("-keyout")
            .arg(self.file(&format!("{name}.key")))
            .arg("-out")
            .arg(self.file(&format!("{name}.pem")))
            .args(more)
            .stderr(Stdio::null())
            .status()
            .expect("openssl");
        assert!(status.success(), "openssl: {status}");
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn setting(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_to_a_certificate_that_is_trusted_and_named_so_and_to_no_other() {
    let certificates = Certificates::new();
    let (certificate, key) = (
        setting("ssl_cert_file", &certificates.file("server.pem")),
        setting("ssl_key_file", &certificates.file("server.key")),
    );
    let server = guarded(&["ssl=on", &certificate, &key]).await;
    let url = |host: &str, parameters: &str| {
        format!("postgres://ada:s3cr%40t@{host}:{}/postgres?{parameters}", server.port())
    };
    let root = setting("&sslrootcert", &certificates.file("root.pem"));
    for mode in ["require", "prefer", "verify-full"] {
        let url = url("localhost", &format!("sslmode={mode}{root}"));
        claims(&url).await.unwrap_or_else(|error| panic!("{mode}: {error}"));
        let store = PostgresStore::open_existing(&url).await.unwrap();
        let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
            WHERE a.usename = 'ada' AND s.ssl";
        assert_eq!(server.foreign().await.number(encrypted).await, Some(1), "{mode}");
        drop(store);
        is_alone(&server).await;
    }
    claims(&url("localhost", "sslmode=disable")).await.unwrap();
    // Another name; and a root that nobody has told of. There is no falling back.
    let other_name = url("127.0.0.1", &format!("sslmode=require{root}"));
    let no_root = [url("localhost", "sslmode=require"), url("localhost", "sslmode=prefer")];
    for url in std::iter::once(other_name).chain(no_root) {
        let error = claims(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
        let said = shows_nothing(&error);
        assert!(said.contains("certificate") && said.contains("sslrootcert"), "{said}");
    }
    let missing = claims(&url("localhost", "sslrootcert=/none.pem")).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Config);
    assert!(missing.to_string().contains("/none.pem"), "{missing}");
}

/// Returns once the store's connections have ended.
async fn is_alone(server: &Postgres) {
    let foreign = server.foreign().await;
    let others = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'ada'";
    while foreign.number(others).await != Some(0) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = guarded(&[]).await;
    let url = |mode: &str| {
        format!("postgres://ada:s3cr%40t@localhost:{}/postgres?sslmode={mode}", server.port())
    };
    claims(&url("prefer")).await.unwrap();
    let error = claims(&url("require")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused);
    let said = shows_nothing(&error);
    assert!(said.contains("does not support TLS") && said.contains("sslmode"), "{said}");
}
