//! Faults in a jobs file, by line.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Everything wrong with a jobs file.
#[derive(Debug)]
pub struct Faults {
    file: PathBuf,
    faults: Vec<Fault>,
}

#[derive(Debug)]
struct Fault {
    line: Option<usize>,
    text: String,
}

impl Faults {
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), faults: Vec::new() }
    }

    /// A fault of the file as a whole.
    pub(super) fn add(&mut self, text: impl Into<String>) {
        self.faults.push(Fault { line: None, text: text.into() });
    }

    /// A fault at a place in `source`.
    pub(super) fn add_at(&mut self, source: &str, place: Range<usize>, text: impl Into<String>) {
        let before = source.get(..place.start).unwrap_or(source);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        self.faults.push(Fault { line: Some(line), text: text.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (n, fault) in self.faults.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            match fault.line {
                Some(line) => write!(f, "{file}:{line}: {}", fault.text)?,
                None => write!(f, "{file}: {}", fault.text)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
