//! A child process that does not outlive whoever holds it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::error::BoxError;
use crate::protocol::Timestamp;
use crate::runtime::{Clock, SystemClock, Task, before, blocking};

/// Between two looks whether it has ended, once it has closed its standard error.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How often a child whose input is closed is looked after until it is killed.
const ENDS_WITHIN: u32 = 400;
/// Lines that are kept of what it says, and what is kept of each.
const KEPT_LINES: usize = 12;
const LINE: usize = 400;
/// What is read of a line at most.
const MOST_READ: u64 = 64 * 1024;

/// A running child. Its standard input is open as long as this lives, which it may watch: it learns
/// in this way that its parent was killed.
pub(super) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    saying: Option<Task<VecDeque<String>>>,
    said: VecDeque<String>,
}

impl Process {
    /// Starts it, in a process group of its own: Ctrl-C is for its parent, which ends it when it has
    /// tidied up.
    pub fn start(mut command: Command) -> Result<Self, BoxError> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn()?;
        let input = child.stdin.take();
        let saying = child.stderr.take().map(|stderr| blocking(move || last_lines(stderr)));
        Ok(Self { child, input, saying, said: VecDeque::new() })
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, BoxError> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end, at most until `by`.
    pub async fn end(&mut self, by: Timestamp) -> Result<Option<ExitStatus>, BoxError> {
        // Nobody looks before it has said its last.
        if let Some(saying) = &mut self.saying
            && let Some(said) = before(&SystemClock, by, saying.join()).await
        {
            self.said = said.unwrap_or_default();
            self.saying = None;
        }
        loop {
            let ended = self.ended()?;
            if ended.is_some() || SystemClock.now() >= by {
                return Ok(ended);
            }
            SystemClock.sleep_until(SystemClock.now() + LOOKS_EVERY).await;
        }
    }

    /// The last of what it said on standard error, once its end was waited for.
    pub fn said(self) -> String {
        self.said.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Closes its input.
    pub fn close_input(&mut self) {
        self.input.take();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // What it has started itself goes with it, where it is left the time to see this.
        self.close_input();
        for _ in 0..ENDS_WITHIN {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that has ended by now need not be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn last_lines(stream: impl Read) -> VecDeque<String> {
    let mut kept = VecDeque::new();
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(MOST_READ).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return kept,
            Ok(_) => {}
        }
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        let line = String::from_utf8_lossy(&line);
        kept.push_back(line.trim_end().chars().take(LINE).collect());
    }
}
