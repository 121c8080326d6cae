//! Fuzzes the property `redirects`.
#![no_main]

#[path = "../../crates/wire/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::redirects(bytes));
