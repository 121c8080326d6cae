//! `nagaya top`: which tenants take most of the machine just now.

use std::io::IsTerminal;
use std::path::Path;

use clap::{Args, ValueEnum};

use crate::control::{self, EVERY, Running, Where};
use crate::outcome::Outcome;

/// Options of `top`.
#[derive(Debug, Args)]
pub(crate) struct TenantsOptions {
    /// Who comes first
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = By::Cpu)]
    by: By,
    /// Tenants shown
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tenants: u16,
    /// Show one second and end, as it is where it is no terminal
    #[arg(long)]
    once: bool,
    /// Print JSON, of one second
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

/// By what tenants are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Processor time
    Cpu,
    /// Memory
    Memory,
    /// What is read from devices and written to them
    Io,
    /// Requests that wait
    Waiting,
    /// Requests refused
    Refused,
}

/// Shows tenants.
pub(crate) fn run(config: &Path, options: &TenantsOptions) -> Outcome {
    let form = if options.json { " json" } else { "" };
    let by = options.by.to_possible_value();
    let by = by.as_ref().map_or("", |it| it.get_name());
    let question = format!("top {} {by}{form}", options.tenants);
    let place = &options.place;
    if !options.once && !options.json && std::io::stdout().is_terminal() {
        return control::watch(config, place, &question);
    }
    // What is taken in a second shows when it is over.
    let asked = Running::find(config, place).and_then(|running| {
        running.answer(&question)?;
        std::thread::sleep(EVERY);
        running.answer(&question)
    });
    control::printed(asked)
}
