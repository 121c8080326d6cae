//! ApacheBench's command line, what it sends, and its report, on our own generator.
//!
//! The idea: whoever has a script around `ab` changes nothing. Labels, order, units, widths and
//! exit statuses are ApacheBench's (2.4); words of errors are ours, and what we have to add stands
//! after the report.

#[allow(dead_code, reason = "what sends the load is built next")]
mod flags;
mod refusal;

use std::ffi::OsString;
use std::process::ExitCode;

use flags::Wish;
pub(crate) use flags::{arguments, is_flag, takes_next_word};

/// The name under which only this mode is spoken.
pub const NAME: &str = "ab";

/// Runs ApacheBench's command line. `program` is what messages call us.
pub(crate) fn main(program: &str, arguments: &[OsString]) -> ExitCode {
    match flags::parse(arguments) {
        Ok(Wish::Load(_) | Wish::Version) => ExitCode::FAILURE,
        Ok(Wish::Usage) => flags::print_usage(program),
        Err(refusal) => refusal.say(program),
    }
}
