//! Input of one JSON document per line, and what its lines have in common.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::Path;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::error::BoxError;
use crate::protocol::IdempotencyKey;

/// The longest line that is read. The largest message, each of its bytes escaped, is shorter.
const MAX_LINE: usize = 8 * 1024 * 1024;

/// The lines of a file, or of standard input, one at a time; empty ones are left out.
pub struct Lines {
    name: String,
    input: Box<dyn BufRead + Send>,
    at: usize,
}

/// A line and its number, from 1.
pub struct Line {
    /// Its number.
    pub at: usize,
    /// What it says; or that it is too long, or no text.
    pub text: Result<String, String>,
}

impl Lines {
    /// Opens a file; standard input if none is named.
    pub fn open(file: Option<&Path>) -> Result<Self, BoxError> {
        let name = name(file);
        let input: Box<dyn BufRead + Send> = match file {
            Some(path) => {
                let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
                Box::new(BufReader::new(file))
            }
            None => Box::new(BufReader::new(stdin())),
        };
        Ok(Self { name, input, at: 0 })
    }

    /// `file:line`, for an error's text.
    pub fn place(&self, at: usize) -> String {
        format!("{}:{at}", self.name)
    }

    /// The next line that is not empty; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Line>, BoxError> {
        loop {
            let mut line = Vec::new();
            let fault = |error| format!("{}: {error}", self.name);
            let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
            let read = self.input.by_ref().take(limit).read_until(b'\n', &mut line);
            if read.map_err(fault)? == 0 {
                return Ok(None);
            }
            self.at += 1;
            let at = self.at;
            if line.len() == MAX_LINE && line.last() != Some(&b'\n') {
                // The rest of it belongs to no line.
                self.input.skip_until(b'\n').map_err(|error| format!("{}: {error}", self.name))?;
                let text = Err(format!("this line is longer than {MAX_LINE} bytes"));
                return Ok(Some(Line { at, text }));
            }
            for end in [b'\n', b'\r'] {
                line.pop_if(|last| *last == end);
            }
            match String::from_utf8(line) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Ok(Some(Line { at, text: Ok(text) })),
                Err(_) => {
                    return Ok(Some(Line { at, text: Err("this line is no UTF-8".to_owned()) }));
                }
            }
        }
    }
}

/// As an error names it.
pub(super) fn name(file: Option<&Path>) -> String {
    file.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
}

/// Reads every line of a file, or of standard input, before anything is done with one. The error
/// names file and line.
pub fn read_lines<T>(
    file: Option<&Path>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, BoxError> {
    let mut lines = Lines::open(file)?;
    let mut all = Vec::new();
    while let Some(Line { at, text }) = lines.next()? {
        let read = text.and_then(|text| read(&text));
        all.push(read.map_err(|error| format!("{}: {error}", lines.place(at)))?);
    }
    Ok(all)
}

/// What is wrong with a line that is no `T`. It is one line, so its column is place enough.
pub(super) fn fault(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    match error.is_data() {
        true => text.to_owned(),
        false => format!("this is no JSON, see column {column} ({text})"),
    }
}

/// A line's `idempotency-key`.
pub(super) fn key<'de, D: Deserializer<'de>>(input: D) -> Result<IdempotencyKey, D::Error> {
    IdempotencyKey::new(String::deserialize(input)?).map_err(de::Error::custom)
}

/// The same, where a line may leave it out.
pub(super) fn some_key<'de, D>(input: D) -> Result<Option<IdempotencyKey>, D::Error>
where
    D: Deserializer<'de>,
{
    key(input).map(Some)
}

/// A message's body for what a line says: text as it is, anything else as JSON.
pub(super) fn body_text(body: &Value) -> String {
    match body {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    }
}
