//! Fuzzes the property `htaccess_expression`.
#![no_main]

#[path = "../../crates/htaccess/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::htaccess_expression(bytes));
