//! `make bench`: parses the flags, runs, prints the report. All else is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match bench::harness::Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::from(2);
        }
    };
    match bench::harness::run(&options) {
        Ok(text) => {
            println!("{text}");
            eprintln!("written to {}", options.output.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
