//! `nagaya bench URL --…`: one load, and a report of what it came to.
//!
//! The idea: the command line becomes an order (`order`), the order a plan that the generator
//! runs, its outcome a [`Report`], and that is what text, page and JSON are made of. Whatever
//! must be known to read a figure rightly stands beside it (`notes`).

mod contradictions;
#[cfg(test)]
mod fixture;
mod notes;
mod options;
mod order;
mod page;
mod progress;
mod record;
mod run;
mod series;
mod tables;
mod target;
mod text;
mod timeline;
mod units;
mod until;
mod versus;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub(crate) use record::*;
pub(crate) use watch::ServerRecord;

pub(crate) use page::document;
pub(crate) use run::try_out;
pub(crate) use watch::{Watched, table as server_table};

use options::Options;
use order::{Order, Refused};

/// Failed while running.
const FAILED: u8 = 1;
/// Wrong use.
const MISUSED: u8 = 2;

/// The definition of its command line.
pub(crate) fn definition() -> clap::Command {
    Options::command()
}

/// Does what the arguments after `nagaya bench` ask for.
pub(crate) fn main(arguments: Vec<OsString>) -> ExitCode {
    let arguments = std::iter::once(OsString::from("nagaya bench")).chain(arguments);
    let options = match Options::try_parse_from(arguments) {
        Ok(options) => options,
        Err(error) => {
            // Help goes to standard output and is no failure; the rest is wrong use.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { MISUSED } else { 0 });
        }
    };
    let order = match Order::from(options) {
        Ok(order) => order,
        Err(Refused::Misuse(reasons)) => {
            for reason in reasons {
                eprintln!("nagaya bench: {reason}");
            }
            eprintln!("See nagaya bench --help.");
            return ExitCode::from(MISUSED);
        }
        Err(Refused::Failed(reason)) => return failed(&reason),
    };
    match run::run(&order) {
        Ok(status) => ExitCode::from(status),
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("nagaya bench: {reason}");
    ExitCode::from(FAILED)
}
