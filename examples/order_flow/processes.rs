//! The worker and the relay: processes of this program that are killed in the middle of things.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::time::Duration;

use onlyonce::BoxError;
use onlyonce::protocol::Timestamp;
use onlyonce::runtime::{Clock, SystemClock};

const SIGKILL: i32 = 9;

/// How long they live, in milliseconds: they die as they start, in the middle of things, or when there
/// is nothing to do.
pub type Lives = std::ops::Range<u64>;

/// A process that is killed and started again. It ends with its value.
pub struct Victim {
    pub kills: usize,
    /// When it is killed next.
    pub dies_at: Timestamp,
    role: &'static str,
    command: Command,
    process: Child,
}

impl Victim {
    pub fn start(
        role: &'static str,
        environment: &[(&str, String)],
        life: (Lives, &mut fastrand::Rng),
    ) -> Result<Self, BoxError> {
        // Should this program itself be killed, it ends, too.
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=KILL").arg(std::env::current_exe()?).arg(role);
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "error");
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let process = command.spawn()?;
        Ok(Self { kills: 0, dies_at: within(life), role, command, process })
    }

    /// Kills it if it is time, and starts it again.
    pub fn kill_if_due(&mut self, next: (Lives, &mut fastrand::Rng)) -> Result<(), BoxError> {
        if SystemClock.now() < self.dies_at {
            return Ok(());
        }
        self.process.kill()?;
        let ended = self.process.wait()?;
        if ended.signal() != Some(SIGKILL) {
            return Err(format!("the {} has ended by itself: {ended}", self.role).into());
        }
        self.kills += 1;
        self.process = self.command.spawn()?;
        self.dies_at = within(next);
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn within((lives, rng): (Lives, &mut fastrand::Rng)) -> Timestamp {
    SystemClock.now() + Duration::from_millis(rng.u64(lives))
}
