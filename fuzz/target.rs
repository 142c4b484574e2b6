//! One file for all targets: each program is one, by its name.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| onlyonce::fuzz::run(env!("CARGO_BIN_NAME"), data));
