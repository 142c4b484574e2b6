#[cfg(test)] mod tests {}
