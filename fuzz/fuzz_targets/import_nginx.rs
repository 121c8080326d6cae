//! Fuzzes the property `import_nginx`.
#![no_main]

#[path = "../../crates/import/tests/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::import_nginx(bytes));
