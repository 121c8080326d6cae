//! `make demo`: `demo NAGAYA [SECONDS]` shows what one crawler does to twenty sites.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::demo::main()
}
