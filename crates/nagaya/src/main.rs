//! The nagaya binary.
#![forbid(unsafe_code)]
fn main() {}
