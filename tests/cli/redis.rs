//! The command on a Redis that wants TLS and a password.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Folder, onlyonce, run};

/// Ends with its owner.
pub struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis in `folder`, and its URL; there once it listens.
#[allow(clippy::disallowed_methods, reason = "the server starts in the machine's time")]
pub fn plain(folder: &Folder) -> (Server, String) {
    let socket = folder.0.join("redis.sock");
    let server = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--maxmemory-policy", "noeviction"])
        .args(["--unixsocket", &socket.display().to_string()])
        .args(["--dir", &folder.0.display().to_string()])
        .stdout(Stdio::null())
        .spawn();
    let server = Server(server.expect("redis-server is not installed; `make tools` installs it"));
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not listen");
        std::thread::yield_now();
    }
    (server, format!("redis+unix://{}", socket.display()))
}

fn start(folder: &Folder, port: u16) -> Server {
    let file = |name: &str| folder.0.join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &file("key.pem"), "-out", &file("cert.pem")])
        .stderr(Stdio::null())
        .status();
    assert!(made.expect("openssl is not installed").success());
    let server = Command::new("redis-server")
        .args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"])
        .args(["--tls-cert-file", &file("cert.pem"), "--tls-key-file", &file("key.pem")])
        .args(["--requirepass", "s3cret", "--maxmemory-policy", "allkeys-lru", "--save", ""])
        .args(["--dir", &folder.0.display().to_string()])
        .stdout(Stdio::null())
        .spawn();
    Server(server.expect("redis-server is not installed; `make tools` installs it"))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the server starts in the machine's time")]
fn the_command_works_on_redis_with_tls_and_shows_no_password() {
    let folder = Folder::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _server = start(&folder, port);
    let certificate = folder.0.join("cert.pem");
    let ask = |user: &str, words: &[&str]| {
        let store = format!("rediss://{user}@localhost:{port}/2");
        let mut command = onlyonce(&folder.0);
        run(command.env("ONLYONCE_STORE", store).env("SSL_CERT_FILE", &certificate), words)
    };
    let begun = Instant::now();
    let (code, said) = loop {
        let (code, said) = ask(":s3cret", &["setup"]);
        // Not there yet.
        if code == Some(0) || begun.elapsed() > Duration::from_secs(30) {
            break (code, said);
        }
        assert!(said.contains("store unavailable"), "{said}");
    };
    assert!(code == Some(0) && said.contains("Redis answers"), "{said}");
    assert!(said.contains("maxmemory-policy is allkeys-lru"), "{said}");

    let line = "{\"job\":\"user.welcome\",\"idempotency-key\":\"user:1:welcome\"}";
    let done = folder.file("done.jsonl", line);
    let (code, said) = ask(":s3cret", &["import", &done]);
    assert!(code == Some(0) && said.starts_with("1 imported"), "{said}");
    let (code, said) = ask(":s3cret", &["inspect", "user.welcome", "user:1:welcome"]);
    assert!(code == Some(0) && said.contains("completed"), "{said}");
    assert_eq!(ask(":s3cret", &["list", "failed"]).0, Some(0));
    let key = ["user.welcome", "user:1:welcome"];
    let (code, said) = ask(":s3cret", &["release", key[0], key[1]]);
    assert!(code == Some(1) && said.contains("it is completed"), "{said}");
    let (code, said) = ask(":s3cret", &["forget", key[0], key[1], "--yes"]);
    assert!(code == Some(0) && said.contains("forgotten"), "{said}");
    // Not a hole: its token goes on.
    let (code, said) = ask(":s3cret", &["--json", "inspect", key[0], key[1]]);
    assert!(code == Some(0) && said.contains("\"token\":2"), "{said}");

    let (code, said) = ask("ada:wr0ng", &["inspect", "user.welcome", "user:1:welcome"]);
    assert!(code == Some(1) && said.contains("password is wrong"), "{said}");
    assert!(!said.contains("wr0ng") && !said.contains("ada"), "{said}");
    // A certificate that nobody vouches for.
    let store = format!("rediss://:s3cret@localhost:{port}/2");
    let (code, said) = run(onlyonce(&folder.0).env("ONLYONCE_STORE", store), &["list", "failed"]);
    assert!(code == Some(1) && !said.contains("s3cret"), "{said}");
}
