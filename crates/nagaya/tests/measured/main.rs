//! Commands that measure.

mod ab;
mod bench_native;
mod lab;
mod lab_experiments;
