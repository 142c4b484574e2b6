//! MiniStack, where no emulator is given: started for the drill, and gone with it.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aws_config::Region;
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};

use super::process::Process;
use crate::error::BoxError;
use crate::runtime::{Clock, SystemClock};
use crate::sdk::{self, SdkConfig};

/// How long it may take to listen.
const STARTS: Duration = Duration::from_secs(60);
/// How long it may take to go.
const ENDS: Duration = Duration::from_secs(10);
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// It runs as long as this shell's input is open, also where the drill itself is killed; and the shell
/// no longer than it. Both are their own process group.
const WATCHED: &str = r#"( "$0" >/dev/null; kill -9 0 ) &
read -r line; kill -9 0"#;

/// An emulator of our own.
pub(super) struct Emulator {
    shell: Process,
    pub endpoint: String,
}

impl Emulator {
    /// Starts one, and returns once it listens.
    pub async fn start() -> Result<Self, BoxError> {
        let program = find().ok_or(
            "there is no emulator: install one with `pip install ministack` (as `ministack` on the \
             PATH, or in a .venv here), or set AWS_ENDPOINT_URL to one that runs",
        )?;
        // Free now; whoever takes it meanwhile is told by the emulator's end.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut shell = Command::new("sh");
        shell.args(["-c", WATCHED]).arg(&program);
        shell.env("GATEWAY_PORT", port.to_string()).env("BIND_HOST", "127.0.0.1");
        shell.env("MINISTACK_HOST", "127.0.0.1").env_remove("AWS_ENDPOINT_URL");
        let shell =
            Process::start(shell).map_err(|error| format!("{}: {error}", program.display()))?;
        let endpoint = format!("http://127.0.0.1:{port}");
        let mut emulator = Self { shell, endpoint };
        let give_up = SystemClock.now() + STARTS;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let fault = match emulator.shell.ended()? {
                Some(_) => "ended at its start",
                None if SystemClock.now() >= give_up => "does not listen",
                None => {
                    SystemClock.sleep_until(SystemClock.now() + LOOKS_EVERY).await;
                    continue;
                }
            };
            let said = emulator.stop().await;
            return Err(format!(
                "{} {fault}; set AWS_ENDPOINT_URL to an emulator that runs. It said:\n{said}",
                program.display()
            )
            .into());
        }
        Ok(emulator)
    }

    /// Ends it, and answers what it said last.
    pub async fn stop(mut self) -> String {
        self.shell.close_input();
        // Should the shell not go in time, it is killed as this ends.
        let _ = self.shell.end(SystemClock.now() + ENDS).await;
        self.shell.said()
    }
}

/// The SDK's settings for an emulator, with credentials that are nobody's.
pub(super) async fn settings(endpoint: &str) -> SdkConfig {
    let nobody = Credentials::new("test", "test", None, None, "drill");
    sdk::load()
        .await
        .to_builder()
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(nobody))
        .build()
}

/// `ministack` on the PATH, or in a `.venv` here.
fn find() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&on_path).chain([PathBuf::from(".venv/bin")]);
    let mut found = folders.map(|folder| folder.join("ministack")).filter(|path| is_program(path));
    found.next().and_then(|path| path.canonicalize().ok())
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}
