//! A fuzzer for the stable toolchain: it changes what is kept in `tests/fuzz/corpus` at random and
//! feeds it to whatever reads what others wrote.
//!
//! `ONLYONCE_FUZZ_SECONDS` is the time of each target (`make fuzz`); without it there are
//! [`CASES`]. `ONLYONCE_FUZZ_SEED` begins where another run has. What a target dies of is left in
//! `target/fuzz`: kept in its corpus, it is tried first from then on.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Of each target, where no time is given.
const CASES: usize = 4000;
/// An input takes less, on however busy a machine.
const HANGS: Duration = Duration::from_secs(5);
/// The longest input.
const LONGEST: usize = 64 * 1024;

/// Pieces that mean something to one reader or another.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ":",
    ",",
    "null",
    "true",
    "0",
    "-0",
    "1e999",
    "1.0",
    "-1",
    "18446744073709551616",
    "9223372036854775807",
    "\\u0000",
    "\\ud800",
    "\\",
    "\u{0}",
    "\u{feff}",
    "\u{ffff}",
    "\u{1F4A3}",
    "\u{202e}",
    "\u{2028}",
    "\r\n",
    "\n",
    " ",
    "{{",
    "}}",
    "{a}",
    "{name}",
    "..",
    "/",
    "//",
    "@",
    "#",
    "?",
    "%",
    "%00",
    "<",
    ">",
    "=",
    "'",
    "\"\"\"",
    "[[",
    "[job.\"a\"]\n",
    "Records",
    "body",
    "messageAttributes",
    "s3:TestEvent",
    "Type",
    "Message",
    "detail",
    "key",
    "effect = \"http\"\n",
    "inf",
    "nan",
    "1979-05-27",
    "0x",
    "https://",
    "xn--",
    "[::1]",
    "é",
];

/// Feeds `check` the corpus of `target` as it is, and then what comes of it by changes at random.
/// `check` panics at what must not be.
pub(crate) fn fuzz(target: &str, check: impl Fn(&str)) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = corpus(&root.join("tests/fuzz/corpus").join(target));
    let given = std::env::var("ONLYONCE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| Rng::new().u64(..));
    // Two tests may have one corpus.
    let test = std::thread::current().name().unwrap_or(target).replace("::", "-");
    let found = Found { file: root.join("target/fuzz").join(test), target, seed };
    for input in &corpus {
        found.unless(input, &check);
    }
    let mut rng = Rng::with_seed(seed);
    let mut budget = Budget::new();
    while budget.is_left() {
        let input = String::from_utf8_lossy(&changed(&corpus, &mut rng)).into_owned();
        found.unless(&input, &check);
    }
    println!("{target}: {} inputs from {} kept ones, seed {seed}", budget.spent, corpus.len());
}

/// The same for what is made from randomness alone.
#[cfg(any(feature = "dynamodb", feature = "sqlite", feature = "redis"))]
pub(crate) fn fuzz_made(target: &str, mut check: impl FnMut(&mut Rng)) {
    let given = std::env::var("ONLYONCE_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    let first = given.unwrap_or_else(|| Rng::new().u64(..));
    let mut budget = Budget::new();
    while budget.is_left() {
        let seed = first.wrapping_add(budget.spent as u64);
        let checked = catch_unwind(AssertUnwindSafe(|| check(&mut Rng::with_seed(seed))));
        if let Err(panic) = checked {
            eprintln!("{target}: again by ONLYONCE_FUZZ_SEED={seed}");
            resume_unwind(panic);
        }
    }
    println!("{target}: {} inputs, seed {first}", budget.spent);
}

fn corpus(folder: &Path) -> Vec<String> {
    let files =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    let corpus: Vec<_> = paths.into_iter().map(read).collect();
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    corpus
}

struct Budget {
    until: Option<Instant>,
    spent: usize,
}

#[allow(clippy::disallowed_methods, reason = "a fuzzer's time is the machine's")]
impl Budget {
    fn new() -> Self {
        let seconds = std::env::var("ONLYONCE_FUZZ_SECONDS").ok();
        let seconds = seconds.map(|text| text.parse().expect("ONLYONCE_FUZZ_SECONDS is a number"));
        Self { until: seconds.map(|s| Instant::now() + Duration::from_secs(s)), spent: 0 }
    }

    fn is_left(&mut self) -> bool {
        let is_left = match self.until {
            Some(until) => Instant::now() < until,
            None => self.spent < CASES,
        };
        self.spent += usize::from(is_left);
        is_left
    }
}

struct Found<'a> {
    file: PathBuf,
    target: &'a str,
    seed: u64,
}

impl Found<'_> {
    /// The file is written before and not after: a stack that overflows ends the process.
    #[allow(clippy::disallowed_methods, reason = "a fuzzer's time is the machine's")]
    fn unless(&self, input: &str, check: &impl Fn(&str)) {
        fs::create_dir_all(self.file.parent().unwrap()).unwrap();
        fs::write(&self.file, input).unwrap();
        let begun = Instant::now();
        let checked = catch_unwind(AssertUnwindSafe(|| check(input)));
        let took = begun.elapsed();
        let Self { file, target, seed } = self;
        if checked.is_err() || took > HANGS {
            eprintln!(
                "{target}: seed {seed}; keep {} in tests/fuzz/corpus/{target}/ under a name that \
                 says what it is",
                file.display()
            );
        }
        if let Err(panic) = checked {
            resume_unwind(panic);
        }
        assert!(took <= HANGS, "{target}: one input took {took:?}");
        fs::remove_file(file).unwrap();
    }
}

/// A kept input after up to six changes.
fn changed(corpus: &[String], rng: &mut Rng) -> Vec<u8> {
    let any = |rng: &mut Rng| rng.choice(corpus).map_or(&[][..], |text| text.as_bytes());
    let mut bytes = any(rng).to_vec();
    for _ in 0..rng.usize(1..=6) {
        let at = rng.usize(0..=bytes.len());
        let to = rng.usize(at..=bytes.len().min(at + 40));
        match rng.u8(0..10) {
            0 => drop(bytes.drain(at..to)),
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..to, std::iter::repeat_with(|| rng.u8(..)).take(4))),
            3..=5 => {
                let piece = rng.choice(PIECES).map_or("", |piece| *piece);
                bytes.splice(at..to, piece.bytes());
            }
            6 => {
                let piece = rng.choice(PIECES).map_or("", |piece| *piece);
                let many = piece.repeat(1 << rng.u32(0..12));
                bytes.splice(at..at, many.bytes());
            }
            7 => {
                let again = bytes[at..to].repeat(1 << rng.u32(0..8));
                bytes.splice(at..at, again);
            }
            _ => {
                let other = any(rng);
                let from = rng.usize(0..=other.len());
                let until = rng.usize(from..=other.len());
                bytes.splice(at..to, other[from..until].iter().copied());
            }
        }
        bytes.truncate(LONGEST);
    }
    bytes
}
