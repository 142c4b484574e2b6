//! A second DynamoDB, written by others than the first: what both do alike is no emulator's whim.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use onlyonce::store::Store;

use crate::dynamo;
use crate::kept::Kept;

/// How long it may take to start on a busy machine.
const STARTING: Duration = Duration::from_secs(30);

/// Its process, which ends with its owner.
pub struct Dynoxide {
    process: Child,
    address: SocketAddr,
}

impl Dynoxide {
    pub fn start() -> Self {
        // Another program may take the port between its choice and its use: then with another.
        (0..3).find_map(|_| Self::try_start()).expect("dynoxide did not start")
    }

    #[allow(clippy::disallowed_methods, reason = "it starts in the machine's time")]
    fn try_start() -> Option<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let process = Command::new(program())
            .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("dynoxide is not installed; `make tools` installs it");
        let mut dynoxide = Self { process, address };
        let begun = Instant::now();
        while begun.elapsed() < STARTING && dynoxide.process.try_wait().unwrap().is_none() {
            if TcpStream::connect(address).is_ok() {
                return Some(dynoxide);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub async fn client(&self) -> Client {
        let sdk = dynamo::settings().await;
        let config = aws_sdk_dynamodb::config::Builder::from(&sdk);
        let config = config.endpoint_url(format!("http://{}", self.address));
        Client::from_conf(config.build())
    }
}

impl Drop for Dynoxide {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store on a process of its own; rows go to the table `stock`.
pub async fn store() -> Arc<dyn Store> {
    let dynoxide = Dynoxide::start();
    let store = dynamo::store_of(&dynoxide.client().await).await;
    Arc::new(Kept { store: Arc::new(store), _keeps: dynoxide })
}

/// Where `make tools` has put it; else wherever it is found.
fn program() -> PathBuf {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/dynoxide");
    if installed.exists() { installed } else { PathBuf::from("dynoxide") }
}
