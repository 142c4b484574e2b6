//! Fuzzing whatever reads what others wrote. Each target is a test, which says what must hold of
//! any input; inputs come at random (`random`, in every run of the tests) or from a fuzzer that sees
//! which lines an input reaches (`guided`, by `fuzz/`).

#[cfg(not(test))]
mod guided;
#[cfg(test)]
mod random;

#[cfg(not(test))]
pub(crate) use guided::fuzz;
#[cfg(not(test))]
pub use guided::run;
#[cfg(test)]
pub(crate) use random::fuzz;
#[cfg(all(test, any(feature = "dynamodb", feature = "sqlite", feature = "redis")))]
pub(crate) use random::fuzz_made;
