//! Fuzzes the property `htaccess`.
#![no_main]

#[path = "../../crates/htaccess/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::htaccess(bytes));
