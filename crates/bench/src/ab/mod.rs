//! ApacheBench's command line, what it sends, and its report, on our own generator.
//!
//! The idea: whoever has a script around `ab` changes nothing. Labels, order, units, widths and
//! exit statuses are ApacheBench's (2.4); words of errors are ours, and what we have to add stands
//! after the report.

mod ending;
mod extras;
mod figures;
mod files;
mod flags;
mod notes;
mod refusal;
mod report;
mod request;
mod run;
mod tables;
mod target;
mod tls;

use std::ffi::OsString;
use std::process::ExitCode;

use flags::Wish;
pub(crate) use flags::{arguments, is_flag, takes_next_word};

/// The name under which only this mode is spoken.
pub const NAME: &str = "ab";

/// Runs ApacheBench's command line. `program` is what messages call us.
pub(crate) fn main(program: &str, arguments: &[OsString]) -> ExitCode {
    let result = match flags::parse(arguments) {
        Ok(Wish::Load(flags)) => run::run(&flags),
        Ok(Wish::Usage) => Ok(flags::print_usage(program)),
        Ok(Wish::Version) => {
            run::print(&report::banner());
            Ok(ExitCode::SUCCESS)
        }
        Err(refusal) => Err(refusal),
    };
    result.unwrap_or_else(|refusal| refusal.say(program))
}
