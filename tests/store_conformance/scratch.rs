//! A folder that goes with the test.

use std::path::PathBuf;

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        let name = format!("onlyonce-{:016x}", fastrand::Rng::new().u64(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
