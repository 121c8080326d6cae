//! How a subcommand ended, and what the user is told about it.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use config::{Colour, Diagnostics};

/// How a subcommand ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As asked.
    Fine,
    /// Something failed while running.
    Failed,
    /// Wrong use, or a wrong configuration.
    Wrong,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Fine => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::from(1),
            Outcome::Wrong => ExitCode::from(2),
        }
    }
}

/// Shows what is hardly meant.
pub(crate) fn warn(warnings: &Diagnostics) {
    complain(&warnings.render(colour()));
}

/// Shows the problems of a configuration.
pub(crate) fn wrong_config(problems: &Diagnostics) -> Outcome {
    complain(&problems.render(colour()));
    Outcome::Wrong
}

/// Whether standard error shows colours.
pub(crate) fn colour() -> Colour {
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colours {
        Colour::Always
    } else {
        Colour::Never
    }
}

/// Writes to stdout. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(bytes: &[u8]) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Outcome::Fine,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Outcome::Fine,
        Err(error) => {
            let why = config::reason(&error);
            complain(&format!("nagaya: write to standard output: {why}\n"));
            Outcome::Failed
        }
    }
}

/// Writes to stderr; nobody is left to hear of it when that fails.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
