//! The program `nagaya-lab`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    lab::main()
}
