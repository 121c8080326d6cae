//! Commands that measure.

mod ab;
mod bench_native;
