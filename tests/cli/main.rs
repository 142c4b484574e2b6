//! The command and the examples, as a person runs them.

#![cfg(feature = "cli")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod accept;
mod dev;
mod dlq;
mod doctor;
mod drill;
mod examples;
mod operate;
mod order_flow;
mod poll;
mod postgres;
mod producers;
mod queue;
mod readme;
mod redis;
mod send;
#[path = "../servers/postgres.rs"]
mod server;
mod telling;
mod transcript;
mod verbs;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The `onlyonce` command, at the root of the repository, with a store of its own.
fn onlyonce(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.current_dir(root());
    command.env("ONLYONCE_STORE", format!("sqlite:{}", folder.join("records.db").display()));
    command
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// An example's program, which cargo builds along with the tests.
fn example(name: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let built = this.parent().unwrap().parent().unwrap().join("examples").join(name);
    let mut command = Command::new(built);
    command.current_dir(root());
    command
}

/// Runs to the end: exit status, and what it said on both streams.
fn run<A: AsRef<OsStr>>(command: &mut Command, arguments: &[A]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
    let said = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code(), said)
}

/// A folder that is gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("cli-{:016x}", fastrand::Rng::new().u64(..));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
