//! Fuzzes the load generator's reader of replies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    load::client::replies_are_the_same_however_cut(bytes);
});
