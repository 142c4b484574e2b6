//! A microburst of the test's own: a proxy that speaks AWS's protocols and breaks what it is told to.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long it may take to start on a busy machine.
const STARTING: Duration = Duration::from_secs(30);

/// Ends with its owner, also when the test panics.
pub struct Proxy {
    process: Child,
    address: SocketAddr,
}

impl Proxy {
    /// In front of `AWS_ENDPOINT_URL`, on a port of its own.
    pub fn start() -> Self {
        let upstream = std::env::var("AWS_ENDPOINT_URL")
            .expect("AWS_ENDPOINT_URL is not set; `make test` starts local services and sets it");
        // Another program may take the port between its choice and its use: then with another.
        (0..3).find_map(|_| Self::try_start(&upstream)).expect("microburst did not start")
    }

    fn try_start(upstream: &str) -> Option<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new(program())
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--upstream", upstream])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("microburst is not installed; `make tools` installs it");
        let mut proxy = Self { process, address };
        let begun = Instant::now();
        while begun.elapsed() < STARTING && proxy.process.try_wait().unwrap().is_none() {
            if TcpStream::connect(address).is_ok() {
                return Some(proxy);
            }
            // It says nothing once it listens; and it needs the core that asks.
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// By name: for a host with dots it reads the models of all of AWS first, for five seconds.
    pub fn url(&self) -> String {
        format!("http://localhost:{}", self.address.port())
    }

    /// From now on these rules, and no others.
    pub fn breaks(&self, rules: Value) {
        let set = self.ask("POST", "rules", &rules.to_string());
        assert_eq!(set.as_array().map(Vec::len), rules.as_array().map(Vec::len), "{set}");
    }

    /// From now on nothing is broken. Answers how often each rule has struck.
    pub fn heals(&self) -> Vec<u64> {
        let rules = self.ask("GET", "rules", "");
        self.ask("POST", "rules", "[]");
        let struck = |rule: &Value| rule["fired_count"].as_u64().unwrap();
        rules.as_array().unwrap().iter().map(struck).collect()
    }

    /// How many answers the service has given through here.
    pub fn answered(&self) -> u64 {
        self.ask("GET", "stats", "")["upstream_latency_ms"]["n"].as_u64().unwrap()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(
            stream,
            "{method} /_microburst/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
        serde_json::from_str(body).unwrap_or(Value::Null)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where `make tools` has put it; else wherever it is found.
fn program() -> PathBuf {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/microburst");
    if installed.exists() { installed } else { PathBuf::from("microburst") }
}
